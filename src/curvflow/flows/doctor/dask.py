"""Dask, and the workers of a scheduler."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from curvflow.flows.doctor.finding import Finding, State
from curvflow.flows.doctor.versions import installed
from curvflow.flows.runners.one_line import one_line

# Those without which a tile cannot be told to a worker, and those that move last bits.
ESSENTIAL = ("python", "curvflow", "dask", "distributed")
NUMERICAL = ("torch", "numpy")


def dask_findings(
    version_of: Callable[[str], str | None] = installed,
) -> Iterator[Finding]:
    """Look whether Dask and its distributed half fit and can be imported.

    Args:
        version_of: tells the version of a package.

    Yields:
        What was found.
    """
    dask, distributed = version_of("dask"), version_of("distributed")
    remedy = "pip install --upgrade dask distributed"
    if dask != distributed or dask is None:
        told = f"dask {dask or 'missing'} beside distributed {distributed or 'missing'}"
        yield Finding("dask", "FAIL", told, f"Run `{remedy}`.")
        return
    import distributed as _  # noqa: F401  # an import that fails is the finding

    yield Finding("dask", "ok", f"dask and distributed {dask}")


def scheduler_findings(address: str) -> Iterator[Finding]:
    """Look at a scheduler and its workers; nothing is computed there.

    Args:
        address: as `dask scheduler` prints it.

    Yields:
        What was found.
    """
    # Loaded here because what else is looked at needs no Dask.
    from curvflow.flows.runners.connected import UNUSABLE, connected

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # versions are told below, all of them
        try:
            with connected(address) as client:
                workers = client.scheduler_info(n_workers=-1)["workers"]
                versions: Any = client.get_versions(packages=["curvflow", *NUMERICAL])
        except (OSError, *UNUSABLE) as error:
            remedy = "Start one with `dask scheduler`, or check address and network."
            told = f"{address}: {one_line(error)}"
            yield Finding("scheduler", "FAIL", told, remedy)
            return
    yield Finding("scheduler", "ok", f"{address} answers")
    yield from worker_findings(address, workers)
    yield from version_findings(versions)


def worker_findings(address: str, workers: Mapping[str, Any]) -> Iterator[Finding]:
    """Look at what the workers offer.

    Args:
        address: of the scheduler.
        workers: by address, as the scheduler describes them.

    Yields:
        What was found.
    """
    start = f"dask worker {address} --nthreads 1"
    if not workers:
        yield Finding("workers", "FAIL", "none", f"Start some with `{start}`.")
        return
    threads = sorted({worker["nthreads"] for worker in workers.values()})
    plural = "" if threads == [1] else "s"
    told = f"{len(workers)}, with {' or '.join(map(str, threads))} thread{plural} each"
    if threads == [1]:
        yield Finding("workers", "ok", told)
    else:
        remedy = f"Give each one thread, and start more: `{start}`."
        yield Finding("workers", "FAIL", told, remedy)  # a run refuses them
    gpus = sum("GPU" in (one.get("resources") or {}) for one in workers.values())
    if gpus:
        yield Finding("workers.gpu", "ok", f"{gpus} of {len(workers)} offer a GPU")
    else:
        remedy = f"Where there are GPUs, one worker each: `{start} --resources GPU=1`."
        yield Finding("workers.gpu", "ok", "none offers a GPU", remedy)


def version_findings(versions: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare what is installed here, with the scheduler and on the workers.

    Args:
        versions: as Dask's client tells them.

    Yields:
        One finding a package that differs, or one for all.
    """
    own = versions["client"]["packages"]
    theirs = [one["packages"] for one in versions["workers"].values()]
    is_alike = True
    for name in (*ESSENTIAL, *NUMERICAL):
        found = {packages.get(name) for packages in theirs}
        if name in ("dask", "distributed", "python"):
            found.add(versions["scheduler"]["packages"].get(name))
        here = _short(name, own.get(name))
        if others := {_short(name, one) for one in found} - {here}:
            is_alike = False
            yield _differing(name, here, sorted(others))
    if is_alike and theirs:
        yield Finding("workers.versions", "ok", "the same as here")


def _differing(name: str, own: str, others: list[str]) -> Finding:
    told = f"{name} {' and '.join(others)} there, {own} here"
    if name == "python":
        remedy = f"Start scheduler and workers with Python {own}."
    else:
        remedy = f"There, run `pip install {name}=={own}`."
    state: State = "FAIL" if name in ESSENTIAL else "warn"
    return Finding("workers.versions", state, told, remedy)


def _short(name: str, version: str | None) -> str:
    if version is None:
        return "missing"
    return ".".join(version.split(".")[:2]) if name == "python" else version
