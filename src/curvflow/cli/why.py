"""`curvflow why`: what differs from the nearest earlier result."""

from __future__ import annotations

from typing import Annotated

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    labels,
    opened,
    print_json,
)
from curvflow.errors import RequestError


def command(
    study: StudyPath,
    node: Annotated[str, typer.Argument(metavar="STAGE[axis=value,...]")],
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Tell what differs from the nearest earlier result, old value -> new value."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.plan import make_plan
    from curvflow.flows.why import explain

    asked = opened(study, store, profile, overrides)
    stage, where = split(node)
    plan = make_plan(asked.study, asked.store, asked.files)
    answers = explain(plan, stage, where)
    if as_json:
        print_json([answer.as_json() for answer in answers])
    else:
        typer.echo("\n".join(str(answer) for answer in answers))


def split(node: str) -> tuple[str, dict[str, str]]:
    """Split `stage[axis=value,...]` into its stage and labels.

    Args:
        node: as written on the command line.

    Returns:
        The stage's name, and axis to label.

    Raises:
        RequestError: a bracket is not closed.
    """
    stage, bracket, rest = node.partition("[")
    if bracket and not rest.endswith("]"):
        raise RequestError(f"expected STAGE[axis=value,...], got '{node}'")
    pairs = [pair for pair in rest.removesuffix("]").split(",") if pair]
    return stage, labels(pairs)
