"""The store: whether it is there, can be written, and numbers what it is told once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from curvflow.errors import CurvflowError
from curvflow.flows.doctor.finding import Finding
from curvflow.stores.base import Store
from curvflow.stores.commits import LocalCommits
from curvflow.stores.files import Disk

SCARCE, TOO_LITTLE = 1 << 30, 1 << 24
OTHER = "Name a store on another file system."


def store_findings(
    opened: Callable[[], Store], *, disk: Disk | None = None
) -> Iterator[Finding]:
    """Look at a store; what is written to it for that is removed again.

    Args:
        opened: opens it, without making one.
        disk: through which all changes of a local one pass.

    Yields:
        What was found.
    """
    try:
        store = opened()
        where, is_there = store.location, store.room.exists()
        told = "is a store" if is_there else "can be made into a store by a run"
        if where.startswith("s3://"):
            yield Finding("store", "ok", f"{where} {told}")
            yield _bucket(where)
        elif where != "memory:":
            folder = Path(where).resolve()
            yield Finding("store", "ok", f"{folder} {told}")
            yield _folder(folder, disk or Disk())
            yield _room(_existing(folder))
    except CurvflowError as error:
        yield _refused("store", error)


def _refused(check: str, error: CurvflowError) -> Finding:
    found, _, remedy = str(error).partition(". ")
    return Finding(check, "FAIL", found, remedy)


def _folder(folder: Path, disk: Disk) -> Finding:
    """Commit the same number twice, below the store or where it would be made."""
    tmp = folder / "tmp"
    # A store clears its own tmp of such names, should this be killed meanwhile.
    probe = (tmp if tmp.is_dir() else _existing(folder)) / f"doctor-{uuid4().hex}"
    commits = LocalCommits(disk, probe, probe, prepare=lambda: disk.make_folder(probe))
    try:
        first, second = (commits.create(1, b"{}") for _ in range(2))
        is_linked = (probe / "0000000001.json").is_file()
    except CurvflowError as error:
        return _refused("store.write", error)
    except OSError as error:
        told = f"cannot be written: {error.strerror or error}"
        return Finding("store.write", "FAIL", told, "Check your rights on it.")
    finally:
        disk.remove(probe)
    if not first or second:
        told = "a number was given twice, so commits could be lost"
        return Finding("store.write", "FAIL", told, OTHER)
    way = "hard links" if is_linked else "renaming folders, as there are no hard links"
    return Finding("store.write", "ok", f"can be written; commits by {way}")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    told = f"{free / 2**30:.1f} GiB free"
    if free >= SCARCE:
        return Finding("store.room", "ok", told)
    remedy = "Free some space; `curvflow gc` lists what may go."
    return Finding("store.room", "FAIL" if free < TOO_LITTLE else "warn", told, remedy)


def _bucket(where: str) -> Finding:
    """Create the same object twice below the store's prefix."""
    from curvflow.stores.bucket import Bucket  # only such addresses need what it needs

    name, _, prefix = where.removeprefix("s3://").partition("/")
    bucket, probe = Bucket(name, prefix), f"tmp/doctor-{uuid4().hex}"
    try:
        first, second = (bucket.create(probe, b"") for _ in range(2))
    except CurvflowError as error:
        return _refused("store.write", error)
    finally:
        with suppress(CurvflowError):  # what may not be written is not there
            bucket.remove([probe])
    if not first or second:
        told = "the server overwrites what it was told to keep (If-None-Match)"
        return Finding("store.write", "FAIL", told, "Update it, or name another store.")
    return Finding("store.write", "ok", "can be written; conditional puts are honoured")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_dir())
