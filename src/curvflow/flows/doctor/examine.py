"""All checks of `curvflow doctor`, in the order of their dependence."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from curvflow.flows.doctor.machine import (
    Finding,
    machine_findings,
    python_findings,
    torch_findings,
    within,
)
from curvflow.flows.doctor.services import (
    dask_findings,
    import_findings,
    prefect_findings,
    scheduler_findings,
    server_findings,
    store_findings,
)
from curvflow.flows.graph.open_study import open_study
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

# Seconds; a library may lie on a slow disk.
IMPORT, ANSWER = 60.0, 10.0

REINSTALL = "Reinstall it: `pip install --force-reinstall {}`."
SERVER = "Check PREFECT_API_URL and the server's log."
SCHEDULER = "Check the address, the network and the scheduler's log."
STORE = "Check the disk, or AWS_ENDPOINT_URL, AWS_REGION and the network."


def examine(
    study: Path | None, *, store: str | None = None, scheduler: str | None = None
) -> Iterator[Finding]:
    """Check everything curvflow needs; nothing is changed or left behind.

    Args:
        study: its file, to check its store.
        store: address of the store, if not the study's.
        scheduler: address of a Dask scheduler to check.

    Yields:
        Findings, as soon as they are known.
    """
    yield from python_findings()
    yield from machine_findings()
    yield from within(IMPORT, "torch", torch_findings, REINSTALL.format("torch"))
    yield from within(IMPORT, "dask", dask_findings, REINSTALL.format("distributed"))
    if scheduler is not None:
        check = partial(scheduler_findings, scheduler)
        yield from within(ANSWER, "scheduler", check, SCHEDULER)
    yield from _prefect()
    if study is not None or store is not None:
        opened = partial(_opened, study, store)
        yield from within(ANSWER, "store", partial(store_findings, opened), STORE)


def _prefect() -> Iterator[Finding]:
    versions = list(prefect_findings())
    yield from versions
    if versions[0].state == "ok":
        remedy = REINSTALL.format("prefect")
        broken = within(IMPORT, "prefect.import", import_findings, remedy)
        yield from broken or within(ANSWER, "prefect.server", server_findings, SERVER)


def _opened(study: Path | None, store: str | None) -> Store:
    if study is not None:
        return open_study(study, store=store).store
    assert store is not None
    return open_store(store, create=False)
