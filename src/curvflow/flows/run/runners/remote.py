"""Dask clusters beyond this machine, and the file that describes them.

cluster:
  factory: dask_jobqueue:SLURMCluster
  kwargs: {cores: 8, memory: 32GB, queue: short}
  workers: 4    # or adapt: {minimum: 0, maximum: 20}
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import dask
from distributed import Client

from curvflow.errors import ClusterError, Place, RequestError, StudyError, nearest
from curvflow.flows.graph.open_study import read_text
from curvflow.flows.run.runners.client import (
    ANSWER_WITHIN,
    LOST,
    UNUSABLE,
    connected,
    give_up,
    one_line,
    quiet,
)
from curvflow.schemas.options import Cluster, configured
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import Spot, parse, shown

LOOK_EVERY = 0.2  # seconds between looks for the first worker
WAIT_COUNT = "distributed.adaptive.wait-count"

# Seconds that a worker may be idle before it is let go. Dask has three; but to be asked
# whether it is fit it loads PyTorch, and a queue may take long to give another.
IDLE = 60


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """Join a cluster by its scheduler's address.

    Args:
        address: `tcp://host:8786`.

    Yields:
        A client of the cluster.

    Raises:
        RequestError: nobody answers there.
    """
    with ExitStack() as stack:
        stack.enter_context(quiet())
        try:
            client = stack.enter_context(connected(address))
        except UNUSABLE as error:
            raise RequestError(
                f"--scheduler: expected an address that Dask can connect to, got "
                f"{address}: {one_line(error)}. `dask scheduler` prints the one it has."
            ) from error
        except OSError as error:
            raise RequestError(
                f"--scheduler: expected a Dask scheduler at {address}, got no answer "
                f"within {ANSWER_WITHIN:.0f} s. Start one with `dask scheduler`, or "
                "correct the address."
            ) from error
        yield client


@contextmanager
def cluster_client(asked: Cluster, tell: Callable[[str], None]) -> Iterator[Client]:
    """Start the cluster that a configuration asks for; it ends with the block.

    Args:
        asked: what to call, and how far to scale.
        tell: takes a line if it cannot be ended.

    Yields:
        A client of the cluster.

    Raises:
        RequestError: there is no such thing to call, or it fails.
    """
    with ExitStack() as stack:
        stack.enter_context(quiet())
        # Whatever the queue of a site says comes through, in many shapes.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a port that another has, say
                cluster = _made(asked)
            stack.callback(_close, cluster, asked.factory, tell)
            if asked.workers is not None:
                cluster.scale(asked.workers)
            elif asked.adapt is not None:
                least, most = asked.adapt.minimum, asked.adapt.maximum
                looks = max(IDLE, dask.config.get(WAIT_COUNT))
                with dask.config.set({WAIT_COUNT: looks}):
                    cluster.adapt(minimum=least, maximum=most)
            client = stack.enter_context(connected(cluster))
        except Exception as error:
            raise RequestError(
                f"--cluster: expected {asked.factory} to start a Dask cluster, got "
                f"{type(error).__name__}: {one_line(error)}. Correct its factory and "
                "kwargs."
            ) from error
        yield client


def await_first(
    client: Client,
    *,
    within: float,
    tell: Callable[[str], None],
    check: Callable[[], None],
) -> None:
    """Wait until there is a worker; a cluster that grows with the work sees some.

    Args:
        client: of the cluster.
        within: seconds to wait at most.
        tell: takes a line if there is none yet.
        check: raises if the run is asked to end.

    Raises:
        ClusterError: none came, or the scheduler is lost.
    """
    until = time.monotonic() + within
    sync: Any = client.sync  # has no types
    scheduler: Any = client.scheduler
    work = None
    address: str = scheduler.address

    def is_empty() -> bool:
        try:
            return not sync(scheduler.identity, n_workers=-1)["workers"]
        except LOST:
            give_up(address)

    while is_empty():
        if work is None:
            work = client.submit(int, key=f"first-{uuid4().hex}", pure=False)
            tell(f"{address}: waiting for the first worker")
        check()
        if time.monotonic() > until:
            raise ClusterError(
                f"{address}: expected a worker, got none within "
                f"{within:.0f} s. Look into the log of the queue, or start one with "
                f"`dask worker {address} --nthreads 1`."
            )
        time.sleep(LOOK_EVERY)


def _made(asked: Cluster) -> Any:
    module, _, name = asked.factory.partition(":")
    return getattr(import_module(module), name)(**asked.kwargs)


def _close(cluster: Any, factory: str, tell: Callable[[str], None]) -> None:
    try:
        cluster.close()
    # What was computed is no worse for it, and no two queues fail alike.
    except Exception as error:
        tell(
            f"--cluster: expected {factory} to end its cluster, got "
            f"{type(error).__name__}: {one_line(error)}. Look whether its jobs have "
            "ended."
        )


PART = ("cluster",)
FACTORY = (*PART, "factory")
START = "Start from 'cluster: {factory: dask_jobqueue:SLURMCluster, workers: 4}'."


def read_cluster(path: str | Path) -> Cluster:
    """Read which cluster is to be started, and see that its factory can be imported.

    The file's folder becomes importable, as that of a study does.

    Args:
        path: of the file.

    Returns:
        The cluster; nothing has been started.

    Raises:
        RequestError: the file cannot be read, or does not say what it must; the error
            names the place.
    """
    file = Path(path)
    what = "a file that describes a cluster"
    text = read_text(file, what=what, remedy="Check --cluster.")
    document = _document(text, str(path))
    cluster = configured(Cluster, document, PART)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _check_factory(cluster.factory, document)
    return cluster


def _document(text: str, file: str) -> Document:
    def locate(line: int, column: int) -> Spot:
        return Place(file, line + 1, column + 1)

    root = parse(text, locate)
    if root is None or not isinstance(root.value, dict):
        got = "an empty file" if root is None else shown(root.plain())
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
        message = f"expected a class or function of '{path}', got {shown(name)}"
        hint = nearest(name, _callables(module))
        raise document.complain(FACTORY, message, hint)


def _not_imported(path: str, error: Exception, document: Document) -> StudyError:
    message = f"expected a module that can be imported, got {shown(path)}"
    top = path.partition(".")[0]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return document.complain(FACTORY, f"{message} ({reason})", "Mend its import.")
    if not f"{path}.".startswith(f"{missing}."):
        message += f", which needs '{missing}'"
    hint = "Install it, or put it beside this file."
    if missing == top and top.startswith("dask_"):
        hint = f"Run `pip install {top.replace('_', '-')}`."
    return document.complain(FACTORY, message, hint)


def _callables(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    ]
