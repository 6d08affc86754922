"""What takes room in a store, and how it is moved aside and removed."""

import os

import pytest

from curvflow.errors import CorruptPayloadError
from curvflow.stores import payloads
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.stores.open import open_store
from curvflow.stores.room import aside, home
from tests.stores.contract import arrays_of, publish


@pytest.fixture(params=["zip", "folder", "memory", "bucket"])
def store(request, tmp_path, monkeypatch):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "bucket":
        name = request.getfixturevalue("bucket")
        return open_store(f"s3://{name}/store", create=False)
    if request.param == "folder":
        monkeypatch.setattr(payloads, "ZIP_BYTES", -1)
    return LocalStore(tmp_path / "store")


@pytest.fixture
def receipt(store):
    return publish(store, arrays_of(), ["a", "b", "c"])[0]


@pytest.mark.usefixtures("receipt")
def test_a_store_that_was_written_to_exists(store):
    assert store.room.exists()


def only(store, place):
    (item,) = store.room.items(place)
    return item


def test_a_payload_is_told_with_its_size_and_the_time_of_the_store(store, receipt):
    item = only(store, "payloads")
    assert item.payload == receipt.payload
    assert item.path == f"{home(item)}/{item.name}"
    assert item.bytes >= sum(array.nbytes for array in arrays_of().values()) // 2
    assert item.time <= store.room.clock()
    assert store.room.committed(1) <= store.room.clock()


def test_what_is_in_the_trash_is_read_until_it_is_removed(store, receipt):
    assert store.room.move(only(store, "payloads"), aside("trash", 7))
    assert store.room.items("payloads") == []
    trashed = only(store, "trash")
    assert trashed.payload == receipt.payload
    assert store.present([receipt.payload]) == {receipt.payload}
    assert set(store.read(receipt, ["loss"])) == {"loss"}
    store.room.remove([trashed, trashed])
    assert store.room.items("trash") == []
    assert store.present([receipt.payload]) == set()
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.read(receipt, ["loss"])


def test_what_is_in_quarantine_is_never_read(store, receipt):
    store.room.move(only(store, "payloads"), aside("quarantine", 7))
    assert only(store, "quarantine").payload == receipt.payload
    assert store.present([receipt.payload]) == set()
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.read(receipt, ["loss"])


def test_a_payload_comes_home_from_the_trash(store, receipt):
    first = only(store, "payloads")
    store.room.move(first, aside("trash", 7))
    trashed = only(store, "trash")
    assert store.room.move(trashed, home(trashed))
    assert only(store, "payloads").path == first.path
    assert store.room.items("trash") == []


def test_what_is_gone_is_not_moved(store, receipt):
    item = only(store, "payloads")
    store.room.remove([item])
    assert not store.room.move(item, aside("trash", 7))


def test_a_payload_written_again_while_in_the_trash_is_at_home(store, receipt):
    store.room.move(only(store, "payloads"), aside("trash", 7))
    assert store.write_payload(arrays_of()) == receipt.payload
    assert only(store, "payloads").payload == receipt.payload
    store.room.remove(store.room.items("trash"))
    assert store.present([receipt.payload]) == {receipt.payload}


def test_all_of_a_payload_is_inspected(store, receipt):
    store.inspect(receipt.payload, store.index().receipts.values())
    with pytest.raises(CorruptPayloadError, match="missing"):
        store.inspect("0" * 64, [])


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
    store.room.move(item, aside("trash", 7))
    assert only(store, "trash").time > 5


def test_emptying_the_trash_leaves_no_folders(tmp_path):
    store = LocalStore(tmp_path / "store")
    publish(store, arrays_of(), ["a"])
    publish(store, arrays_of(1), ["b"])
    for item in store.room.items("payloads"):
        store.room.move(item, aside("trash", 7))
    one, other = store.room.items("trash")
    store.room.remove([one])
    assert (tmp_path / "store/trash/0000000007").is_dir()
    store.room.remove([other])
    assert not (tmp_path / "store/trash/0000000007").exists()


def test_a_store_that_is_not_there_has_nothing_and_is_not_made(tmp_path):
    room = LocalStore(tmp_path / "none").room
    assert [room.items(place) for place in ("payloads", "trash", "tmp")] == [[]] * 3
    assert (room.exists(), room.clock()) == (False, 0)
    assert not (tmp_path / "none").exists()
