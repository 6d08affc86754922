"""From a path to a study and its store: where every command and script begins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curvflow.flows.files import SourceFiles
from curvflow.flows.texts import read_text
from curvflow.schemas.study import Study, load_study
from curvflow.stores.base import Store
from curvflow.stores.open import open_store


@dataclass(frozen=True)
class Opened:
    """A study file, resolved, with the store beside it.

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
    path: str | Path,
    *,
    store: str | Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    create: bool = False,
) -> Opened:
    """Read a study file and open its store.

    The study's folder becomes importable, so that a study can name modules beside it.

    Args:
        path: the study file.
        store: where results are; `.curvflow` beside the study file by default.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        create: make the store if it is not there; else an empty one is pretended.

    Returns:
        The study and its store.

    Raises:
        RequestError: the file cannot be read or is no study, or the store cannot
            be opened.
    """
    file = Path(path)
    remedy = "`curvflow init` writes one to start from."
    text = read_text(file, what="a study file", remedy=remedy)
    folder = file.resolve().parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    study = load_study(text, file=str(path), profile=profile, overrides=overrides)
    where = folder / ".curvflow" if store is None else store
    opened = open_store(where, create=create)
    results = folder / "results" / study.name
    return Opened(study, opened, SourceFiles(folder), results)
