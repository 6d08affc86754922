"""A Dask cluster as a configuration file describes it; nothing of Dask is imported.

cluster:
  factory: dask_jobqueue:SLURMCluster
  kwargs: {cores: 8, memory: 32GB, queue: short}
  workers: 4    # or adapt: {minimum: 0, maximum: 20}
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from curvflow.errors import Place, StudyError, nearest
from curvflow.flows.graph.open_study import read_text
from curvflow.schemas.options import Cluster, read_model
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import Location, parse, short_yaml
from curvflow.schemas.words import one_line

PART = ("cluster",)
FACTORY = (*PART, "factory")
START = "Start from 'cluster: {factory: dask_jobqueue:SLURMCluster, workers: 4}'."


def read_cluster(path: str | Path) -> Cluster:
    """Read the cluster to start, and check that its factory can be imported.

    The file's folder becomes importable, as that of a study does. Nothing is started.

    Raises:
        RequestError: the file cannot be read, or does not say what it must; the error
            names the place.
    """
    file = Path(path)
    what = "a file that describes a cluster"
    text = read_text(file, what=what, remedy="Check --cluster.")
    document = _document(text, str(path))
    cluster = read_model(Cluster, document, PART)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _check_factory(cluster.factory, document)
    return cluster


def _document(text: str, file: str) -> Document:
    def locate(line: int, column: int) -> Location:
        return Place(file, line + 1, column + 1)

    root = parse(text, locate)
    if root is None or not isinstance(root.value, dict):
        got = "an empty file" if root is None else short_yaml(root.plain())
        place = locate(0, 0) if root is None else root.place
        message = f"expected a mapping, got {got}"
        raise StudyError("", message, place=place, hint=START)
    document = Document(root)
    document.refuse_unknown((), PART, "the key 'cluster'")
    if document.at(PART) is None:
        raise StudyError(
            "cluster", "expected a value, got none", place=root.place, hint=START
        )
    return document


def _check_factory(factory: str, document: Document) -> None:
    path, _, name = factory.partition(":")
    try:
        module = import_module(path)
    except Exception as error:  # whatever somebody else's module raises
        raise _not_imported(path, error, document) from error
    if not callable(getattr(module, name, None)):
        message = f"expected a class or function of '{path}', got {short_yaml(name)}"
        hint = nearest(name, _callables(module))
        raise document.error(FACTORY, message, hint)


def _not_imported(path: str, error: Exception, document: Document) -> StudyError:
    message = f"expected a module that can be imported, got {short_yaml(path)}"
    top = path.partition(".")[0]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        reason = one_line(f"{type(error).__name__}: {error}")
        return document.error(FACTORY, f"{message} ({reason})", "Mend its import.")
    if not f"{path}.".startswith(f"{missing}."):
        message += f", which needs '{missing}'"
    hint = "Install it, or put it next to this file."
    if missing == top and top.startswith("dask_"):
        hint = f"Run `pip install {top.replace('_', '-')}`."
    return document.error(FACTORY, message, hint)


def _callables(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    ]
