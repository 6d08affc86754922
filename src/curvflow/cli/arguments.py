"""Arguments that several commands share, and how they answer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.graph.open_study import Opened
    from curvflow.stores.base import Store

StudyPath = Annotated[Path, typer.Argument(help="the study file", metavar="STUDY")]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="where results are [default: .curvflow beside STUDY]"),
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
RunNumber = Annotated[
    int | None, typer.Option("--run", metavar="N", help="as of run N of the study")
]


def print_json(value: Any) -> None:
    """Print JSON on stdout; NaN and infinities, which JSON lacks, become null."""
    typer.echo(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def opened(
    study: Path,
    store: str | None,
    profile: str | None,
    overrides: list[str] | None,
) -> Opened:
    """Open the study and the store that a command's arguments name.

    Args:
        study: path of the study file.
        store: where results are.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.

    Returns:
        The study and its store.

    Raises:
        RequestError: the study or the store cannot be read.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.graph.open_study import open_study

    return open_study(study, store=store, profile=profile, overrides=overrides or ())


def existing(store: Store) -> Store:
    """Return a store of which something is asked that none can answer before a run.

    Args:
        store: as opened.

    Returns:
        The same store.

    Raises:
        RequestError: there is none at its address.
    """
    if not store.files.exists():
        raise RequestError(
            f"{resolved(store)}: expected a store, got nothing there. Check --store."
        )
    return store


def resolved(store: Store) -> str:
    """Return the address of a store in full.

    Args:
        store: in a folder or elsewhere.

    Returns:
        An absolute path, or the address as it is.
    """
    where = store.location
    return where if "://" in where else str(Path(where).resolve())


def any_store(study: Path | None, store: str | None) -> Store:
    """Open the store that a study file or `--store` names.

    Args:
        study: path of a study file, if one is given.
        store: where results are, if it is given.

    Returns:
        The store, with all studies in it.

    Raises:
        RequestError: neither is given, or what is cannot be read or is not there.
    """
    if study is not None:
        return existing(opened(study, store, None, None).store)
    if store is None:
        raise RequestError("expected STUDY or --store, got neither. Name a store.")
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.stores.open import open_store

    return existing(open_store(store, create=False))


def labels(pairs: list[str] | None, *, of: str = "--where") -> dict[str, str]:
    """Split `axis=label` pairs.

    Args:
        pairs: as written on the command line.
        of: what they belong to, for messages.

    Returns:
        Axis to label.

    Raises:
        RequestError: a pair has no equals sign.
    """
    found = {}
    for pair in pairs or ():
        axis, equals, label = pair.partition("=")
        if not equals or not axis:
            raise RequestError(
                f"{of}: expected axis=label, got '{pair}'. Name an axis and its label."
            )
        found[axis.strip()] = label.strip()
    return found
