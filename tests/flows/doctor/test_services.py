"""A store is looked at, and left as it was."""

import errno
import shutil
from functools import partial
from pathlib import Path

import pytest

from curvflow.flows.doctor.machine import Finding
from curvflow.flows.doctor.services import store_findings
from curvflow.stores.files import Disk
from curvflow.stores.open import open_store
from tests.stores.server import serving


def look(url, *, disk=None):
    return list(store_findings(partial(open_store, url, create=False), disk=disk))


def names(folder: Path):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


class Unlinked(Disk):
    """A file system without hard links."""

    def link(self, source, target):
        raise OSError(errno.EPERM, "Operation not permitted")


class Forgetful(Disk):
    """A file system on which a link replaces what is there."""

    def link(self, source, target):
        shutil.copy(source, target)


class ReadOnly(Disk):
    """A file system that can be read."""

    def make_folder(self, path):
        raise OSError(errno.EROFS, "Read-only file system")


class Full(Disk):
    """A file system without room."""

    def write(self, path, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_store_is_fine_and_left_as_it_was(tmp_path):
    open_store(tmp_path / "store", create=True)
    before = names(tmp_path)
    store, written, room = look(tmp_path / "store")
    assert store == Finding("store", "ok", f"{tmp_path / 'store'} is a store")
    assert written == Finding(
        "store.write", "ok", "can be written; commits by hard links"
    )
    assert room.check == "store.room"
    assert room.message.endswith(" GiB free")
    assert names(tmp_path) == before


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    store, written, _ = look(tmp_path / "a" / "b")
    assert (store.state, written.state) == ("ok", "ok")
    assert store.message == f"{tmp_path / 'a' / 'b'} can be made into a store by a run"
    assert names(tmp_path) == []


def test_without_hard_links_folders_are_renamed(tmp_path):
    _, written, _ = look(tmp_path, disk=Unlinked())
    assert written.state == "ok"
    assert written.message.endswith("by renaming folders, as there are no hard links")
    assert names(tmp_path) == []


def test_a_disk_that_gives_a_number_twice_fails(tmp_path):
    _, written, _ = look(tmp_path, disk=Forgetful())
    assert written == Finding(
        "store.write",
        "FAIL",
        "a number was given twice, so commits could be lost",
        "Name a store on another file system.",
    )


def test_a_disk_that_cannot_be_written_fails_with_its_reason(tmp_path):
    written = look(tmp_path, disk=ReadOnly())[1]
    assert (written.check, written.state) == ("store.write", "FAIL")
    assert "Read-only file system" in written.message
    assert written.remedy


def test_a_full_disk_fails_and_the_room_on_it_is_reported(tmp_path):
    _, written, room = look(tmp_path, disk=Full())
    assert (written.check, written.state) == ("store.write", "FAIL")
    assert "No space left on device" in written.message
    assert written.remedy == "Free some space or name another store."
    assert room.check == "store.room"
    assert names(tmp_path) == []


def test_a_store_that_is_a_file_fails_with_the_stores_own_words(tmp_path):
    path = tmp_path / "file"
    path.touch()
    (store,) = look(path)
    assert store == Finding(
        "store",
        "FAIL",
        f"{path}: expected a folder, got a file",
        "Name another store.",
    )


@pytest.fixture(scope="module")
def s3():
    with serving() as server:
        yield server


@pytest.fixture
def bucket(s3, monkeypatch):
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    s3.make_bucket("examined")
    return "s3://examined/studies"


def test_a_bucket_honours_conditions_and_is_left_as_it_was(bucket):
    store, written = look(bucket)
    assert store.message == f"{bucket} can be made into a store by a run"
    assert written == Finding(
        "store.write", "ok", "can be written; conditional puts are honoured"
    )
    open_store(bucket, create=True)  # which an object left behind would prevent
    assert look(bucket)[0].message == f"{bucket} is a store"


def test_a_bucket_that_is_not_there_fails_with_its_remedy(bucket):
    (store,) = look("s3://nowhere-to-be-found/studies")
    assert store.state == "FAIL"
    assert "no bucket of that name" in store.message
    assert store.remedy.startswith("Make it, or check the name")
