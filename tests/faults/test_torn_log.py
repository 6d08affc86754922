"""Every kind of entry of the log: durable once written, void once torn."""

from dataclasses import replace
from itertools import combinations

import pytest

from curvflow.schemas.records.receipts import CodeRecord, Pin, Settlement
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.testing.stores import arrays_of, begin, end, publish
from tests.stores.crash import Crash, Recorded


def evict(store):
    payload = store.index().receipts["a"].payload
    store.evict([payload], "collected")


ENTRIES = {
    "receipts": lambda store: publish(store, arrays_of(1), ["c"]),
    "retired": lambda store: store.retire(["a"], "rotten"),
    "run-begun": begin,
    "run-ended": lambda store: end(store, store.index().runs[0]),
    "code": lambda store: store.record_codes({"f": CodeRecord("train", 1, 1, {})}),
    "settled": lambda store: store.settle([Settlement("train", [["f", "g"]], "same")]),
    "evicted": evict,
    "pinned": lambda store: store.pin(Pin("kept", 1, "for the paper")),
    "unpinned": lambda store: store.unpin("first"),
}


def beginning(store):
    """Write what each entry may refer to."""
    begin(store)
    publish(store, arrays_of(0), ["a"])
    store.pin(Pin("first", 1, "it was the first"))


def tear(folder, number):
    path = folder / "commits" / f"{number:010}.json"
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_torn_entry_of_any_kind_is_void_and_the_others_stand(tmp_path, kind):
    store = LocalStore(tmp_path)
    beginning(store)
    before = store.index()
    ENTRIES[kind](store)
    (number,) = {store.index().number} - {before.number}
    assert replace(store.index(), number=before.number) != before
    tear(tmp_path, number)
    torn = LocalStore(tmp_path)
    assert torn.index() == replace(before, number=number, void=[number])
    publish(torn, arrays_of(2), ["d"])
    assert list(LocalStore(tmp_path).index().receipts) == ["a", "d"]
    assert torn.torn_entries() == [number]
    torn.write_tombstones([number])
    assert LocalStore(tmp_path).torn_entries() == []
    assert LocalStore(tmp_path).index() == torn.index()


@pytest.mark.parametrize("kind", ENTRIES)
def test_power_lost_while_an_entry_is_written_leaves_all_of_it_or_nothing(
    tmp_path, kind
):
    disk, root = Recorded(), tmp_path / "store"
    root.mkdir()
    store = LocalStore(root, disk=disk)
    beginning(store)
    first = len(disk.done)
    before = store.index()
    ENTRIES[kind](store)
    after = store.index()
    for point in range(first, len(disk.done) + 1):
        crash = Crash(root).replay(disk.done[:point])
        for number, kept in enumerate((("commits",), ())):
            left = tmp_path / f"{point}-{number}"
            crash.leave(left, kept=("", *kept))
            expected = (before, after) if point < len(disk.done) else (after,)
            assert LocalStore(left).index() in expected
            Disk().remove(left)


def test_power_lost_while_nodes_are_claimed_leaves_claims_that_can_be_taken(tmp_path):
    disk, root = Recorded(), tmp_path / "store"
    root.mkdir()
    store = LocalStore(root, disk=disk)
    begin(store)
    store.claims.take(1, ["a", "b"], lambda _: False)
    store.claims.take(1, ["c"], lambda _: False)
    store.claims.release(1, ["a"])
    tops = ("commits", "claims")
    kinds = [("", *some) for n in range(3) for some in combinations(tops, n)]
    for point in range(len(disk.done) + 1):
        crash = Crash(root).replay(disk.done[:point])
        for number, kept in enumerate(kinds):
            left = tmp_path / f"{point}-{number}"
            crash.leave(left, kept=kept)
            claims = LocalStore(left).claims
            assert claims.take(7, ["a", "b", "c"], lambda _: True) == ["a", "b", "c"]
            assert set(claims.holders().values()) == {7}
            Disk().remove(left)


def test_a_kept_state_is_whole_or_not_there_whenever_power_is_lost(tmp_path):
    disk, root = Recorded(), tmp_path / "store"
    root.mkdir()
    store = LocalStore(root, disk=disk)
    store.save_snapshot("tile", {"x": arrays_of(0)["loss"]})
    first = len(disk.done)
    store.save_snapshot("tile", {"x": arrays_of(1)["loss"]})
    found = []
    for point in range(len(disk.done) + 1):
        crash = Crash(root).replay(disk.done[:point])
        for number, kept in enumerate([("",), ("", "partials")]):
            left = tmp_path / f"{point}-{number}"
            crash.leave(left, kept=kept)
            kept_state = LocalStore(left).load_snapshot("tile")
            found.append(None if kept_state is None else float(kept_state["x"][0, 0]))
            if point >= first:
                assert found[-1] is not None
            Disk().remove(left)
    assert set(found) == {None, *(arrays_of(n)["loss"][0, 0] for n in (0, 1))}
