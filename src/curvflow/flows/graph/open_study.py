"""A study opened with its store: the start of every command and script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curvflow.errors import RequestError
from curvflow.flows.graph.files import SourceFiles
from curvflow.schemas.study.study import Study, load_study
from curvflow.stores.base import Store
from curvflow.stores.open import open_store


def read_text(file: Path, *, what: str, remedy: str) -> str:
    """Read a text file.

    Raises:
        RequestError: it cannot be read, or is no UTF-8 text; ends with the remedy.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise RequestError(
            f"{file}: expected {what}, got none: {reason}. {remedy}"
        ) from error


@dataclass(frozen=True)
class OpenedStudy:
    """A study, resolved, with its store.

    Attributes:
        study: the resolved study.
        store: its results.
        files: files that its parameters name.
        folder: where tables and figures are put.
    """

    study: Study
    store: Store
    files: SourceFiles
    folder: Path


def open_study(
    study: str | Path,
    *,
    store: str | Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    create: bool = False,
) -> OpenedStudy:
    """Read a study and open its store.

    The study's folder becomes importable, so that a study can name modules next to it.
    The store is `.curvflow` in that folder by default; one that is not there counts as
    empty unless `create` is set.

    Raises:
        RequestError: the file cannot be read or is no study, or the store cannot
            be opened.
    """
    folder, resolved = _from_file(study, profile, overrides)
    return opened_in(folder, resolved, store=store, create=create)


def opened_in(
    folder: Path,
    study: Study,
    *,
    store: str | Path | None = None,
    create: bool = False,
) -> OpenedStudy:
    """Open the store of a study that is read, whose files lie in a folder."""
    where = folder / ".curvflow" if store is None else store
    opened = open_store(where, create=create)
    results = folder / "results" / study.name
    return OpenedStudy(study, opened, SourceFiles(folder), results)


def _from_file(
    path: str | Path, profile: str | None, overrides: Sequence[str]
) -> tuple[Path, Study]:
    file = Path(path)
    remedy = "`curvflow init` writes one to start from."
    text = read_text(file, what="a study file", remedy=remedy)
    folder = file.resolve().parent
    make_importable(folder)
    return folder, load_study(
        text, file=str(path), profile=profile, overrides=overrides
    )


def make_importable(folder: Path) -> None:
    """Put a folder first on the path of imports."""
    others = [entry for entry in sys.path if entry != str(folder)]
    sys.path[:] = [str(folder), *others]
