"""Stored files: listed, moved to the trash, deleted."""

import os
import shutil
from pathlib import Path

import pytest

from curvflow.errors import CorruptPayloadError
from curvflow.stores import local_payloads
from curvflow.stores.commits import MemoryCommits
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryFiles, MemoryStore
from curvflow.stores.open import open_store
from curvflow.stores.trash import payload_folder, trash_folder
from curvflow.testing.stores import arrays_of, publish


@pytest.fixture(params=["zip", "folder", "memory", "bucket"])
def store(request, tmp_path, monkeypatch):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "bucket":
        name = request.getfixturevalue("bucket")
        return open_store(f"s3://{name}/store", create=False)
    if request.param == "folder":
        monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
    return LocalStore(tmp_path / "store")


@pytest.fixture
def receipt(store):
    return publish(store, arrays_of(), ["a", "b", "c"])[0]


@pytest.mark.usefixtures("receipt")
def test_a_store_that_was_written_to_exists(store):
    assert store.files.exists()


def only(store, place):
    (item,) = store.files.items(place)
    return item


def test_a_payload_is_reported_with_its_size_and_the_time_of_the_store(store, receipt):
    item = only(store, "payloads")
    assert item.payload == receipt.payload
    assert item.path == f"{payload_folder(item)}/{item.name}"
    assert item.bytes >= sum(array.nbytes for array in arrays_of().values()) // 2
    assert item.time <= store.files.clock()
    assert store.files.entry_time(1) <= store.files.clock()


def test_what_is_in_the_trash_is_read_until_it_is_removed(store, receipt):
    assert store.files.move(only(store, "payloads"), trash_folder("trash", 7))
    assert store.files.items("payloads") == []
    trashed = only(store, "trash")
    assert trashed.payload == receipt.payload
    assert store.present([receipt.payload]) == {receipt.payload}
    assert set(store.read(receipt, ["loss"])) == {"loss"}
    store.files.remove([trashed, trashed])
    assert store.files.items("trash") == []
    assert store.present([receipt.payload]) == set()
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.read(receipt, ["loss"])


def test_what_is_in_quarantine_is_never_read(store, receipt):
    store.files.move(only(store, "payloads"), trash_folder("quarantine", 7))
    assert only(store, "quarantine").payload == receipt.payload
    assert store.present([receipt.payload]) == set()
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.read(receipt, ["loss"])


def test_a_payload_comes_home_from_the_trash(store, receipt):
    first = only(store, "payloads")
    store.files.move(first, trash_folder("trash", 7))
    trashed = only(store, "trash")
    assert store.files.move(trashed, payload_folder(trashed))
    assert only(store, "payloads").path == first.path
    assert store.files.items("trash") == []


def test_what_is_gone_is_not_moved(store, receipt):
    item = only(store, "payloads")
    store.files.remove([item])
    assert not store.files.move(item, trash_folder("trash", 7))


def test_a_payload_written_again_while_in_the_trash_is_at_home(store, receipt):
    store.files.move(only(store, "payloads"), trash_folder("trash", 7))
    assert store.write_payload(arrays_of()) == receipt.payload
    assert only(store, "payloads").payload == receipt.payload
    store.files.remove(store.files.items("trash"))
    assert store.present([receipt.payload]) == {receipt.payload}


def test_a_payload_at_home_and_in_the_trash_comes_home_once(store, receipt):
    store.files.move(only(store, "payloads"), trash_folder("trash", 7))
    store.write_payload(arrays_of())
    trashed = only(store, "trash")
    assert store.files.move(trashed, payload_folder(trashed))
    assert store.files.items("trash") == []
    assert only(store, "payloads").payload == receipt.payload
    assert set(store.read(receipt, ["loss"])) == {"loss"}


@pytest.fixture
def coming_home(store, monkeypatch):
    """Let payloads in the trash come home just before somebody looks for them there."""
    owner = (
        local_payloads.LocalPayloads if isinstance(store, LocalStore) else type(store)
    )
    original = owner._trashed

    def late(self, *wanted):
        for item in store.files.items("trash"):
            store.files.move(item, payload_folder(item))
        return original(self, *wanted)

    monkeypatch.setattr(owner, "_trashed", late)


@pytest.mark.usefixtures("coming_home")
def test_a_payload_that_comes_home_while_it_is_looked_for_is_found(store, receipt):
    for ask in (
        lambda: store.present([receipt.payload]) == {receipt.payload},
        lambda: set(store.read(receipt, ["loss"])) == {"loss"},
        lambda: set(store.layout(receipt.payload)) == set(arrays_of()),
        lambda: set(store.read_payload(receipt.payload)) == set(arrays_of()),
    ):
        store.files.move(only(store, "payloads"), trash_folder("trash", 7))
        assert ask()


def test_a_payload_that_moves_while_it_is_open_is_read(store, receipt):
    assert set(store.read(receipt, ["loss"])) == {"loss"}
    other = store if isinstance(store, MemoryStore) else again(store)
    other.files.move(only(store, "payloads"), trash_folder("trash", 7))
    assert set(store.read(receipt, ["weights"])) == {"weights"}
    other.files.move(only(store, "trash"), payload_folder(only(store, "trash")))
    assert set(store.read_payload(receipt.payload)) == set(arrays_of())


def again(store):
    """Open the same store as another process does."""
    if isinstance(store, LocalStore):
        return LocalStore(Path(store.location))
    return open_store(store.location, create=False)


class Watched(dict):
    """Tells what is held elsewhere at the moment at which something is taken out."""

    def __init__(self, *args):
        super().__init__(*args)
        self.elsewhere, self.seen = {}, []

    def pop(self, key, *default):
        self.seen.append(list(self.elsewhere))
        return super().pop(key, *default)


def test_a_payload_in_memory_is_there_at_every_moment_of_a_move():
    name = "a" * 64
    there, trash = Watched({name: arrays_of()}), Watched()
    there.elsewhere, trash.elsewhere = trash, there
    room = MemoryFiles(MemoryCommits(), payloads=there, aside=trash, times={})
    (item,) = room.items("payloads")
    assert room.move(item, trash_folder("trash", 7))
    (item,) = room.items("trash")
    assert room.move(item, payload_folder(item))
    assert (there.seen, trash.seen) == ([[item.path]], [[name]])


def test_all_of_a_payload_is_inspected(store, receipt):
    store.verify_payload(receipt.payload, store.index().receipts.values())
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.verify_payload("0" * 64, [])


def test_an_entry_is_refused_if_the_log_says_so_just_before(store, receipt):
    seen = []
    number = store.index().number
    refused = store.evict(
        [receipt.payload], "test", unless=lambda i: not seen.append(i)
    )
    assert refused is None
    assert [index.number for index in seen] == [number]
    assert store.evict([receipt.payload], "test", unless=lambda _: False) == number + 1
    assert store.index().evicted == {receipt.payload}


def test_time_in_the_trash_counts_from_the_move(tmp_path):
    store = LocalStore(tmp_path / "store")
    publish(store, arrays_of(), ["a"])
    item = only(store, "payloads")
    os.utime(tmp_path / "store" / item.path, (5, 5))
    item = only(store, "payloads")
    assert item.time == 5
    store.files.move(item, trash_folder("trash", 7))
    assert only(store, "trash").time > 5


def test_emptying_the_trash_leaves_no_folders(tmp_path):
    store = LocalStore(tmp_path / "store")
    publish(store, arrays_of(), ["a"])
    publish(store, arrays_of(1), ["b"])
    for item in store.files.items("payloads"):
        store.files.move(item, trash_folder("trash", 7))
    item, other = store.files.items("trash")
    store.files.remove([item])
    assert (tmp_path / "store/trash/0000000007").is_dir()
    store.files.remove([other])
    assert not (tmp_path / "store/trash/0000000007").exists()


def test_a_folder_of_trash_that_goes_while_it_is_looked_through_is_no_error(
    tmp_path, monkeypatch
):
    store = LocalStore(tmp_path / "store")
    receipt = publish(store, arrays_of(), ["a"])[0]

    def late(list_of):
        def listed(path):
            if str(path).endswith("0000000007"):
                shutil.rmtree(path, ignore_errors=True)  # as another collection does
            return list_of(path)

        return listed

    monkeypatch.setattr(os, "scandir", late(os.scandir))
    monkeypatch.setattr(os, "listdir", late(os.listdir))
    for ask in (
        lambda: store.present([receipt.payload]) == set(),
        lambda: store.files.items("trash") == [],
        lambda: _is_missing(store, receipt),
    ):
        store.write_payload(arrays_of())
        store.files.move(only(store, "payloads"), trash_folder("trash", 7))
        assert ask()


def _is_missing(store, receipt):
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.read(receipt, ["loss"])
    return True


def test_a_folder_of_trash_that_goes_once_it_was_looked_at_is_no_error(
    tmp_path, monkeypatch
):
    store = LocalStore(tmp_path / "store")
    publish(store, arrays_of(), ["a"])
    store.files.move(only(store, "payloads"), trash_folder("trash", 7))
    original = os.stat

    def late(path, **options):
        state = original(path, **options)
        if str(path).endswith("0000000007"):
            shutil.rmtree(path, ignore_errors=True)  # as another collection does
        return state

    monkeypatch.setattr(os, "stat", late)
    assert len(store.files.items("trash")) == 1
    assert store.files.items("trash") == []


def test_a_folder_of_trash_that_goes_while_it_is_made_is_made_again(
    tmp_path, monkeypatch
):
    store = LocalStore(tmp_path / "store")
    receipt = publish(store, arrays_of(), ["a"])[0]
    original, gone = os.mkdir, []

    def late(path, *mode):
        if Path(path).name == "0000000007" and not gone:
            gone.append(path)  # it was there, and another collection has emptied it
            raise FileExistsError(17, "File exists", str(path))
        original(path, *mode)

    monkeypatch.setattr(os, "mkdir", late)
    assert store.files.move(only(store, "payloads"), trash_folder("trash", 7))
    assert only(store, "trash").payload == receipt.payload


def test_a_store_that_is_not_there_has_nothing_and_is_not_made(tmp_path):
    room = LocalStore(tmp_path / "none").files
    assert [room.items(place) for place in ("payloads", "trash", "tmp")] == [[]] * 3
    assert (room.exists(), room.clock()) == (False, 0)
    assert not (tmp_path / "none").exists()
