"""`curvflow kinds`: the kinds of stages, with every parameter."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import AsJson, echo, print_json
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.schemas.explanations import Explanation
    from curvflow.schemas.kind import Kind

NAME, WIDTH = 27, 80
PARAMETER = typer.Argument(help="one of its parameters, in full, or rule.sgd, a form")
ALL = typer.Option("--all", help="every form of every parameter in full")


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="one kind, in full; a kind of yours is module:name"),
    ] = None,
    parameter: Annotated[str | None, PARAMETER] = None,
    *,
    whole: Annotated[bool, ALL] = False,
    as_json: AsJson = False,
) -> None:
    """List the kinds that `use:` knows, or show one.

    With NAME, that kind with every parameter, its inputs and its outputs.
    """
    _check(parameter, as_json=as_json)
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.cli.text.kind_page import kind_page, parameter_page
    from curvflow.schemas.explanations import explanations
    from curvflow.schemas.kinds import all_kinds
    from curvflow.schemas.study.draft import find_kind

    if name is None:
        kinds = list(all_kinds().values())
    else:
        # As a study in the current folder would find it.
        sys.path.insert(0, str(Path.cwd()))
        kinds = [find_kind(name, place="kinds")]
    if as_json:
        by_kind = explanations()
        print_json(
            [
                kind.as_json() | _explanation(kind, by_kind.get(kind.name))
                for kind in kinds
            ]
        )
    elif name is None:
        echo("\n".join(map(_line, kinds)))
    elif parameter:
        echo(parameter_page(kinds[0], parameter))
    else:
        echo(kind_page(kinds[0], name=name, whole=whole))


def _check(parameter: str | None, *, as_json: bool) -> None:
    if parameter and as_json:
        raise RequestError(
            "kinds: PARAMETER cannot be combined with --json. Leave one out; JSON has "
            "all parameters."
        )


def _explanation(kind: Kind, explanation: Explanation | None) -> dict[str, object]:
    if explanation is None:
        return {}
    return asdict(explanation) | {
        "units": explanation.units_of(kind.params.model_fields)
    }


def _line(kind: Kind) -> str:
    # NAME fits the longest built-in names, so each summary begins on their line.
    front = f"{kind.name:<{NAME}} "
    return textwrap.fill(
        kind.summary,
        WIDTH,
        initial_indent=front,
        subsequent_indent=" " * len(f"{'':<{NAME}} "),
        break_on_hyphens=False,
    )
