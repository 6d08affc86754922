"""Arguments that several commands share, and the printing of text and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from curvflow.errors import RequestError
from curvflow.schemas.words import printable

if TYPE_CHECKING:
    from curvflow.flows.graph.open_study import OpenedStudy
    from curvflow.flows.results.results import Results
    from curvflow.stores.base import Store

StudyPath = Annotated[Path, typer.Argument(help="the study file", metavar="STUDY")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", help="where results are [default: .curvflow next to STUDY]"
    ),
]
Profile = Annotated[
    str | None, typer.Option("--profile", help="named overrides in the study")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="override one value; repeatable"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON on stdout")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="AXIS=LABEL", help="keep these nodes; repeatable"),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--variable", metavar="NAME", help="this variable; repeatable"),
]
MaxNodes = Annotated[
    int | None,
    typer.Option(
        "--max-nodes",
        min=1,
        metavar="N",
        help="refuse a study of more nodes [default: 10,000,000]",
    ),
]
RunNumber = Annotated[
    int | None, typer.Option("--run", metavar="N", help="as of run N of the study")
]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text on stdout or stderr, with what a terminal would act on escaped."""
    typer.echo(printable(text), err=err, nl=nl)


def print_json(value: Any) -> None:
    """Print JSON on stdout; NaN and infinities, which JSON lacks, become null."""
    text = json.dumps(_finite(value), indent=2, allow_nan=False)
    # All other control characters, and all that is not ASCII, JSON escapes itself.
    echo(text.replace("\x7f", "\\u007f"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class StudyOptions(TypedDict):
    """The options that say which study of a file is meant, and where its results are.

    Attributes:
        store: address of the store; None for the one next to the file.
        profile: named overrides in the study.
        overrides: `a.b=c`, applied last.
        max_nodes: nodes beyond which the study is refused; None for the default.
    """

    store: str | None
    profile: str | None
    overrides: Sequence[str]
    max_nodes: int | None


def study_options(
    store: str | None,
    profile: str | None,
    overrides: list[str] | None,
    max_nodes: int | None,
) -> StudyOptions:
    """Return the options of a study as typer has read them."""
    return StudyOptions(
        store=store, profile=profile, overrides=overrides or (), max_nodes=max_nodes
    )


def same_study(chosen: StudyOptions) -> str:
    """Return the options by which another command means the same study and store."""
    most = chosen["max_nodes"]
    given = [("--store", chosen["store"]), ("--profile", chosen["profile"])]
    given += [("--set", override) for override in chosen["overrides"]]
    given += [("--max-nodes", None if most is None else str(most))]
    return "".join(f" {name} {quote(text)}" for name, text in given if text is not None)


def open_study_store(
    study: Path,
    store: str | None,
    profile: str | None,
    overrides: list[str] | None,
    max_nodes: int | None = None,
) -> OpenedStudy:
    """Open the study and its store; raise RequestError if they cannot be read."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.graph.open_study import open_study

    return open_study(study, **study_options(store, profile, overrides, max_nodes))


def open_study_results(study: Path, run: int | None, chosen: StudyOptions) -> Results:
    """Open the results of a study, as of a run or of all."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.api import open as open_results

    return open_results(study, run=run, **chosen)


def require_store(store: Store) -> Store:
    """Return the store; raise RequestError if there is none at its address."""
    if not store.files.exists():
        raise RequestError(
            f"{full_address(store)}: expected a store, got nothing. Check --store."
        )
    return store


def full_address(store: Store) -> str:
    """Return the absolute path of a store, or its address if it has one."""
    where = store.location
    return where if "://" in where else str(Path(where).resolve())


def open_any_store(study: Path | None, store: str | None) -> Store:
    """Open the existing store that a study file or `--store` names."""
    if study is not None:
        return require_store(open_study_store(study, store, None, None).store)
    if store is None:
        raise RequestError("expected STUDY or --store, got neither. Name a store.")
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.stores.open import open_store

    return require_store(open_store(store, create=False))


def parse_labels(pairs: list[str] | None, *, of: str = "--where") -> dict[str, str]:
    """Return axis to label from `axis=label` pairs; `of` names them in messages."""
    labels = {}
    for pair in pairs or ():
        axis, equals, label = pair.partition("=")
        if not equals or not axis:
            raise RequestError(
                f"{of}: expected axis=label, got '{pair}'. Name an axis and its label."
            )
        labels[axis.strip()] = label.strip()
    return labels
