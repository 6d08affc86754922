"""Checks of the store, Dask and Prefect."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from curvflow.errors import CurvflowError, RequestError
from curvflow.flows.doctor.machine import Finding, State, installed, is_below
from curvflow.schemas.words import collision_note, error_line
from curvflow.stores.base import Store
from curvflow.stores.commits import LocalCommits
from curvflow.stores.files import Disk

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import WorkPool


SCARCE, TOO_LITTLE = 1 << 30, 1 << 24
OTHER = "Name a store on another file system."


def store_findings(
    opened: Callable[[], Store], *, disk: Disk | None = None
) -> Iterator[Finding]:
    """Check a store, opened without making one; files written are removed again."""
    try:
        store = opened()
        where, is_there = store.location, store.files.exists()
        state = "is a store" if is_there else "can be made into a store by a run"
        if where.startswith("s3://"):
            yield Finding("store", "ok", f"{where} {state}")
            yield _bucket(where)
        elif where != "memory:":
            folder = Path(where).resolve()
            yield Finding("store", "ok", f"{folder} {state}")
            yield _folder(folder, disk or Disk())
            yield _room(_existing(folder))
        yield from _collisions(store)
    except CurvflowError as error:
        yield _refused("store", error)


def _collisions(store: Store) -> Iterator[Finding]:
    if collided := store.collided_entries():
        remedy = "Copy a store into an empty folder; let runs share one address."
        yield Finding("store.log", "warn", collision_note(collided), remedy)


def _refused(check: str, error: CurvflowError) -> Finding:
    text, _, remedy = str(error).partition(". ")
    return Finding(check, "FAIL", text, remedy)


def _folder(folder: Path, disk: Disk) -> Finding:
    """Commit the same number twice, below the store or where it would be made."""
    tmp = folder / "tmp"
    # A store clears such names from its tmp, in case this process is killed.
    probe = (tmp if tmp.is_dir() else _existing(folder)) / f"doctor-{uuid4().hex}"
    commits = LocalCommits(disk, probe, probe, prepare=lambda: disk.make_folder(probe))
    try:
        first, second = (commits.create(1, b"{}") for _ in range(2))
        is_linked = (probe / "0000000001.json").is_file()
    except CurvflowError as error:
        return _refused("store.write", error)
    except OSError as error:
        text = f"cannot be written: {error.strerror or error}"
        return Finding("store.write", "FAIL", text, "Check your rights on it.")
    finally:
        disk.remove(probe)
    if not first or second:
        text = "a number was given twice, so commits could be lost"
        return Finding("store.write", "FAIL", text, OTHER)
    way = "hard links" if is_linked else "renaming folders, as there are no hard links"
    return Finding("store.write", "ok", f"can be written; commits by {way}")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free"
    if free >= SCARCE:
        return Finding("store.room", "ok", text)
    remedy = "Free some space; `curvflow gc` lists what may go."
    return Finding("store.room", "FAIL" if free < TOO_LITTLE else "warn", text, remedy)


def _bucket(where: str) -> Finding:
    """Create the same object twice below the store's prefix."""
    from curvflow.stores.bucket import Bucket  # needs the extra s3

    name, _, prefix = where.removeprefix("s3://").partition("/")
    bucket, probe = Bucket(name, prefix), f"tmp/doctor-{uuid4().hex}"
    try:
        first, second = (bucket.create(probe, b"") for _ in range(2))
    except CurvflowError as error:
        return _refused("store.write", error)
    finally:
        with suppress(CurvflowError):  # if it may not be written, it is not there
            bucket.remove([probe])
    if not first or second:
        text = "the server ignores If-None-Match, so commits could be lost"
        return Finding("store.write", "FAIL", text, "Update it, or name another store.")
    return Finding("store.write", "ok", "can be written; conditional puts are honoured")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_dir())


# Packages that must agree for a worker to read a tile, and those that move last bits.
ESSENTIAL = ("python", "curvflow", "dask", "distributed")
NUMERICAL = ("torch", "numpy")


def dask_findings(
    version_of: Callable[[str], str | None] = installed,
) -> Iterator[Finding]:
    """Check that both packages of Dask agree and can be imported."""
    dask, distributed = version_of("dask"), version_of("distributed")
    remedy = "pip install --upgrade dask distributed"
    if dask != distributed or dask is None:
        text = f"dask {dask or 'missing'} with distributed {distributed or 'missing'}"
        yield Finding("dask", "FAIL", text, f"Run `{remedy}`.")
        return
    import distributed as _  # noqa: F401  # an import that fails is the finding

    yield Finding("dask", "ok", f"dask and distributed {dask}")


def scheduler_findings(address: str) -> Iterator[Finding]:
    """Check a scheduler and its workers; nothing is computed there."""
    # Loaded here because other checks need no Dask.
    from curvflow.flows.run.runners.clients import UNUSABLE, connected

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all versions are reported below
        try:
            with connected(address) as client:
                workers = client.scheduler_info(n_workers=-1)["workers"]
                versions: Any = client.get_versions(packages=["curvflow", *NUMERICAL])
        except (OSError, *UNUSABLE) as error:
            remedy = "Start one with `dask scheduler`, or check address and network."
            text = f"{address}: {error_line(error)}"
            yield Finding("scheduler", "FAIL", text, remedy)
            return
    yield Finding("scheduler", "ok", f"{address} answers")
    yield from worker_findings(address, workers)
    yield from version_findings(versions)


def worker_findings(address: str, workers: Mapping[str, Any]) -> Iterator[Finding]:
    """Check threads and GPUs of workers, as the scheduler describes them."""
    start = f"dask worker {address} --nthreads 1"
    if not workers:
        yield Finding("workers", "FAIL", "none", f"Start some with `{start}`.")
        return
    threads = sorted({worker["nthreads"] for worker in workers.values()})
    plural = "" if threads == [1] else "s"
    text = f"{len(workers)}, with {' or '.join(map(str, threads))} thread{plural} each"
    if threads == [1]:
        yield Finding("workers", "ok", text)
    else:
        remedy = f"Give each one thread, and start more: `{start}`."
        yield Finding("workers", "FAIL", text, remedy)  # a run refuses them
    gpus = sum("GPU" in (worker.get("resources") or {}) for worker in workers.values())
    if gpus:
        yield Finding("workers.gpu", "ok", f"{gpus} of {len(workers)} offer a GPU")
    else:
        remedy = f"Where there are GPUs, one worker each: `{start} --resources GPU=1`."
        yield Finding("workers.gpu", "ok", "none offers a GPU", remedy)


def version_findings(versions: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the packages here with those of scheduler and workers."""
    local = versions["client"]["packages"]
    theirs = [version["packages"] for version in versions["workers"].values()]
    is_alike = True
    for name in (*ESSENTIAL, *NUMERICAL):
        remote = {packages.get(name) for packages in theirs}
        if name in ("dask", "distributed", "python"):
            remote.add(versions["scheduler"]["packages"].get(name))
        expected = _short(name, local.get(name))
        if others := {_short(name, version) for version in remote} - {expected}:
            is_alike = False
            yield _differing(name, expected, sorted(others))
    if is_alike and theirs:
        yield Finding("workers.versions", "ok", "the same as here")


def _differing(name: str, here: str, others: list[str]) -> Finding:
    text = f"{name} {' and '.join(others)} there, {here} here"
    if name == "python":
        remedy = f"Start scheduler and workers with Python {here}."
    else:
        remedy = f"There, run `pip install {name}=={here}`."
    state: State = "FAIL" if name in ESSENTIAL else "warn"
    return Finding("workers.versions", state, text, remedy)


def _short(name: str, version: str | None) -> str:
    if version is None:
        return "missing"
    return ".".join(version.split(".")[:2]) if name == "python" else version


# Package, the version it must be below, and the symptom otherwise.
BOUNDS = (
    ("fastapi", "0.151", "the server of Prefect 3.8 cannot start with it"),
    ("sqlalchemy", "2.1", "with it Prefect 3.8 never creates a scheduled run"),
)
SERVER = "prefect server start"
POINT = "export PREFECT_API_URL=http://127.0.0.1:4200/api"


def prefect_findings(
    version_of: Callable[[str], str | None] = installed,
) -> Iterator[Finding]:
    """Check the versions of Prefect and of packages that break it."""
    prefect = version_of("prefect")
    if prefect is None:
        remedy = "Run `pip install 'prefect>=3.8,<4'`."
        yield Finding("prefect", "FAIL", "not installed", remedy)
        return
    yield Finding("prefect", "ok", prefect)
    for package, bound, symptom in BOUNDS:
        version, remedy = version_of(package), f"Run `pip install '{package}<{bound}'`."
        if version is None:
            yield Finding(f"prefect.{package}", "FAIL", "not installed", remedy)
        elif is_below(version, bound):
            yield Finding(f"prefect.{package}", "ok", f"{version}, below {bound}")
        else:
            text = f"{version}; {symptom}"
            yield Finding(f"prefect.{package}", "FAIL", text, remedy)


def import_findings() -> Iterator[Finding]:
    """Import Prefect without its output; an error is raised."""
    import_module("curvflow.flows.deployed")  # which hushes Prefect
    import_module("prefect.client.orchestration")
    yield from ()


def server_findings() -> Iterator[Finding]:
    """Check that Prefect's server answers and that its pools have workers."""
    from curvflow.flows.deployed.server import prefect_api  # slow to import

    try:
        with prefect_api() as client:
            text = f"{client.api_url} answers, version {client.api_version()}"
            yield Finding("prefect.server", "ok", text)
            yield from _pools(client)
    except RequestError:
        text = "none configured; runs are not observed"
        remedy = f"For schedules: `{SERVER}`, then `{POINT}`."
        yield Finding("prefect.server", "ok", text, remedy)
    except CurvflowError as error:
        text, _, remedy = str(error).partition(". ")
        yield Finding("prefect.server", "FAIL", text, remedy)


def _pools(client: SyncPrefectClient) -> Iterator[Finding]:
    pools = client.read_work_pools()
    if not pools:
        remedy = "For deployments: `prefect work-pool create curvflow --type process`."
        yield Finding("prefect.pool", "warn", "no work pool", remedy)
    for pool in sorted(pools, key=lambda pool: pool.name):
        yield _pool(client, pool)


def _pool(client: SyncPrefectClient, pool: WorkPool) -> Finding:
    workers = client.read_workers_for_work_pool(pool.name)
    online = sum(worker.status == "ONLINE" for worker in workers)
    text = f"{pool.name} has {online} online workers"
    if pool.is_paused:
        remedy = f"Run `prefect work-pool resume {pool.name}`."
        return Finding("prefect.pool", "warn", f"{pool.name} is paused", remedy)
    if not online:
        remedy = f"Run `prefect worker start --pool {pool.name}`."
        return Finding("prefect.pool", "warn", text, remedy)
    return Finding("prefect.pool", "ok", text.removesuffix("s" * (online == 1)))
