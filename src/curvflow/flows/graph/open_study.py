"""Studies opened with their stores, and the files that their parameters name."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from curvflow.errors import RequestError
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.reads.windows import importing, may_import
from curvflow.schemas.study.study import Study, load_study
from curvflow.schemas.study.yaml_source import MAX_CHARACTERS
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

NAME = re.compile(r"^study: *[\"']?([^\"'#\n]*?)[\"']? *(?:#.*)?$", re.MULTILINE)
HEAD = 8192  # characters of a file in which its name is looked for


def read_text(file: Path, *, what: str, remedy: str) -> str:
    """Read a text file.

    Raises:
        RequestError: it cannot be read, or is no UTF-8 text; ends with the remedy.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_CHARACTERS + 1)  # one more is refused in parsing
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
    max_nodes: int | None = None,
    create: bool = False,
) -> OpenedStudy:
    """Read a study and open its store.

    The study's folder becomes importable, so that a study can name modules next to it.
    The store is `.curvflow` in that folder by default; one that is not there counts as
    empty unless `create` is set. A study of more than `max_nodes` is not planned.

    Raises:
        RequestError: the file cannot be read or is no study, or the store cannot
            be opened.
    """
    folder, resolved = _from_file(study, profile, overrides)
    bounded = with_max_nodes(resolved, max_nodes)
    return opened_in(folder, bounded, store=store, create=create)


def namesakes(file: Path, name: str) -> list[str]:
    """Return the other study files of a folder that have this name."""
    others = [path for path in file.resolve().parent.glob("*.yaml") if path.is_file()]
    return sorted(
        other.name
        for other in others
        if other.name != file.name and _name_in(other) == name
    )


def _name_in(file: Path) -> str | None:
    """Return what a file's first lines say under `study:`, where it is plain."""
    try:
        with file.open(encoding="utf-8") as lines:
            head = lines.read(HEAD)
    except (OSError, UnicodeDecodeError):
        return None
    named = NAME.search(head)
    return named[1] if named else None


def with_max_nodes(study: Study, max_nodes: int | None) -> Study:
    """Return the study with another bound of its nodes, if one is given."""
    return study if max_nodes is None else replace(study, max_nodes=max_nodes)


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
    with importing(is_likely=may_import(text, *overrides)):
        return folder, load_study(
            text, file=str(path), profile=profile, overrides=overrides
        )


def make_importable(folder: Path) -> None:
    """Put a folder first on the path of imports."""
    others = [entry for entry in sys.path if entry != str(folder)]
    sys.path[:] = [str(folder), *others]
