"""Writes that fail or are killed leave a store whole."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.stores import local_payloads
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.stores.payload_digests import payload_id
from curvflow.testing.stores import arrays_of, begin, end, publish, receipt_of
from tests.commands import Fork
from tests.stores import killed
from tests.stores.crash import Crash, Recorded
from tests.stores.racing import race

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def payload_files(folder):
    return [
        path
        for path in folder.glob("payloads/*/*")
        if path.name.endswith((".zarr.zip", ".zarr"))
    ]


def assert_sound(folder):
    """Every live receipt's payload exists and verifies; none is half-written."""
    store = LocalStore(folder)
    index = store.index()
    live = index.receipts.values()
    assert store.present(r.payload for r in live) == {r.payload for r in live}
    for receipt in live:
        store.read(receipt, list(receipt.parts))
    for path in payload_files(folder):
        name = path.name.partition(".")[0]
        assert payload_id(store._payloads.open(name).read_all()) == name
    return index


def assert_finishes(folder, before, scenario):
    """A run after the fault ends as one without, and repeats nothing committed."""
    disk = killed.Killing(killed.NEVER, scenario)
    killed.work(LocalStore(folder, disk=disk))
    after = assert_sound(folder)
    expected = MemoryStore()
    killed.work(expected)
    digests = {
        key: receipt.digest for key, receipt in expected.index().receipts.items()
    }
    assert {key: receipt.digest for key, receipt in after.receipts.items()} == digests
    assert all(
        after.receipts[key] == receipt for key, receipt in before.receipts.items()
    )
    assert after.runs[0].status == "done"


@pytest.mark.parametrize("scenario", killed.SCENARIOS)
def test_a_process_killed_at_any_point_leaves_a_store_that_goes_on(
    tmp_path, scenario, caplog
):
    # It forks as often as there are points, each time all that it has loaded.
    command = [sys.executable, "-m", "tests.stores.killed", tmp_path, scenario]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    folders = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    assert len(folders) > 25
    numbers = []
    for folder in folders:
        is_healing = scenario == "healing" and payload_files(folder)
        index = LocalStore(folder).index() if is_healing else assert_sound(folder)
        numbers.append(index.number)
        if int(folder.name) % 3 == 0:  # all are sound; every third goes on
            assert_finishes(folder, index, scenario)
    assert sorted(numbers) == numbers
    assert set(numbers) == {0, 1, 2, 3}
    assert caplog.records == []


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["zip", "folder"])
@pytest.mark.parametrize("links", [True, False])
def test_power_lost_at_any_point_leaves_a_store_that_is_sound(
    tmp_path, monkeypatch, caplog, limit, links
):
    def unlinkable(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(local_payloads, "ZIP_BYTES", limit)
    if not links:
        monkeypatch.setattr(Disk, "link", unlinkable)
        monkeypatch.setattr(Recorded, "link", unlinkable)
    disk, root = Recorded(), tmp_path / "store"
    root.mkdir()
    store = LocalStore(root, disk=disk)
    ends = []
    for seed, key in enumerate("ab"):
        publish(store, {"loss": arrays_of(seed, nodes=1)["loss"]}, [key])
        ends.append(len(disk.done))
    tops = ("commits", "payloads")
    kinds = [(), *(("", *chosen) for n in range(3) for chosen in combinations(tops, n))]
    for point in range(len(disk.done) + 1):
        crash = Crash(root).replay(disk.done[:point])
        for number, kept in enumerate(kinds):
            left = tmp_path / f"{point}-{number}"
            crash.leave(left, kept=kept)
            index = soundness(left)
            committed = sum(point >= end for end in ends)
            assert len(index.receipts) >= committed
            Disk().remove(left)
    assert caplog.records == []


def soundness(folder):
    """As `assert_sound`, without opening each payload: sizes tell what is torn."""
    store = LocalStore(folder)
    index = store.index()
    for receipt in index.receipts.values():
        store.read(receipt, ["loss"])
    return index


def test_the_order_of_a_publication_is_payload_folder_commit_folder(tmp_path):
    disk = Recorded()
    store = LocalStore(tmp_path, disk=disk)
    store.make()
    disk.done.clear()
    (receipt,) = publish(store, arrays_of(nodes=1), "a")
    steps = [
        (name, *(p.relative_to(tmp_path).parts[0] for p in rest if isinstance(p, Path)))
        for name, *rest in disk.done
    ]
    payload, commits = ("payloads",), ("commits",)
    assert steps == [
        ("write", "tmp"),
        ("flush", "tmp"),
        ("make_folder", *payload),
        ("rename", "tmp", *payload),
        ("flush", *payload),
        ("flush", *payload),
        ("write", "tmp"),
        ("flush", "tmp"),
        ("link", "tmp", *commits),
        ("flush", *commits),
        ("remove", "tmp"),
    ]
    assert receipt.payload in str(disk.done[3][2])


def test_a_new_store_is_marked_as_one_before_it_holds_anything(tmp_path):
    disk = Recorded()
    LocalStore(tmp_path, disk=disk).make()
    steps = [(name, rest[-1].name) for name, *rest in disk.done if name != "write"]
    assert steps.index(("rename", "FORMAT")) < steps.index(("flush", tmp_path.name))
    assert steps.index(("flush", tmp_path.name)) < steps.index(
        ("make_folder", "commits")
    )


class Full(Disk):
    """Has room for so many writes, and then for half of one."""

    def __init__(self, writes, number=errno.ENOSPC):
        self.left, self.number = writes, number

    def write(self, path, data):
        self.left -= 1
        if self.left < 0:
            super().write(path, data[: len(data) // 2])
            raise OSError(self.number, os.strerror(self.number))
        super().write(path, data)


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["zip", "folder"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_what_is_needed_and_leaves_nothing_half_done(
    tmp_path, monkeypatch, limit, number
):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", limit)
    for writes in range(20):
        folder = tmp_path / str(writes)
        kept = publish(LocalStore(folder), arrays_of(0), ["a"])
        store = LocalStore(folder, disk=Full(writes, number))
        try:
            publish(store, arrays_of(1), ["b"])
        except StoreError as error:
            message = str(error)
        else:
            break
        assert " bytes, got " in message
        assert " bytes free" in message
        assert os.strerror(number) in message
        assert assert_sound(folder).receipts == {"a": kept[0]}
        assert list((folder / "tmp").iterdir()) == []
    assert writes == (2 if limit > 0 else 8)


def test_a_payload_names_the_bytes_it_needs(tmp_path):
    with pytest.raises(StoreError, match=r"expected room for 8000 bytes, got .* free"):
        LocalStore(tmp_path, disk=Full(1)).write_payload({"x": np.zeros((2, 500))})


@pytest.mark.parametrize("links", [1, 0])
def test_six_writers_make_every_key_live_exactly_once(tmp_path, links):
    count = 25
    where = tmp_path / "store"
    racers = [Fork(tmp_path, race, where, w, count, links) for w in range(6)]
    believed = [json.loads(racer.ended()[1]) for racer in racers]
    store = LocalStore(where)
    index = store.index()
    live = {key: receipt.digest for key, receipt in index.receipts.items()}
    for receipt in believed:
        assert receipt.items() <= live.items()
    committed = [receipt.key for receipt in index.rows.values()]
    assert len(committed) == len(set(committed)) == len(live)
    assert len(set(live.values())) > 1
    assert store._log._commits.after(0) == list(range(1, index.number + 1))
    assert list((where / "tmp").iterdir()) == []


class StoresAgree(RuleBasedStateMachine):
    """A local and a memory store, told the same, against dictionaries."""

    keys = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)

    @initialize()
    def open(self):
        # Hypothesis has no fixture per example; the folder goes with the machine.
        from tempfile import TemporaryDirectory

        self.folder = TemporaryDirectory()
        self.local = LocalStore(Path(self.folder.name) / "store")
        self.memory = MemoryStore()
        self.live, self.history, self.begun = {}, [{}], []

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @property
    def both(self):
        return self.local, self.memory

    @rule(keys=keys, seed=st.integers(0, 2))
    def publish(self, keys, seed):
        arrays = arrays_of(seed, nodes=len(keys))
        first, second = (publish(store, arrays, keys) for store in self.both)
        assert first == second
        fresh = {key: slot for slot, key in enumerate(keys) if key not in self.live}
        payload = payload_id(arrays)
        ours = [receipt_of(arrays, s, key=k) for s, k in enumerate(keys)]
        if fresh or any(
            self.live[receipt.key].digest != receipt.digest for receipt in ours
        ):
            for key, slot in fresh.items():
                self.live[key] = replace(ours[slot], payload=payload)
            self.history.append(dict(self.live))
        assert first == [self.live[key] for key in keys]

    @rule(keys=keys)
    def retire(self, keys):
        for store in self.both:
            store.retire(keys, "payload lost")
        for key in keys:
            self.live.pop(key, None)
        self.history.append(dict(self.live))

    @rule(study=st.sampled_from("xy"))
    def begin(self, study):
        first, second = (begin(store, study) for store in self.both)
        assert replace(first, started="") == replace(second, started="")
        self.begun.append(first)
        assert first.number == sum(run.study == study for run in self.begun)
        self.history.append(dict(self.live))

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def end(self, data):
        run = data.draw(st.sampled_from(self.begun))
        for store in self.both:
            assert end(store, run).status == "done"
            store.append_event(run, {"event": "ended"})
        self.history.append(dict(self.live))

    @rule()
    def open_again(self):
        self.local = LocalStore(Path(self.local.location))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), is_whole=st.booleans())
    def lose_and_write_again(self, data, is_whole):
        receipt = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        (path,) = Path(self.local.location).glob(f"payloads/*/{receipt.payload}.*")
        arrays = self.local._payloads.open(receipt.payload).read_all()
        Disk().remove(path) if is_whole else path.write_bytes(path.read_bytes()[:-30])
        del self.memory._payloads[receipt.payload]
        self.local = LocalStore(Path(self.local.location))
        for store in self.both:
            with pytest.raises(CorruptPayloadError):
                store.read(receipt, ["loss"])
            assert store.write_payload(arrays) == receipt.payload

    @rule(data=st.data())
    def look_back(self, data):
        number = data.draw(st.integers(0, len(self.history) - 1))
        for store in self.both:
            assert store.index(as_of=number).receipts == self.history[number]

    @invariant()
    def they_agree(self):
        if not hasattr(self, "folder"):
            return
        first, second = (store.index() for store in self.both)
        assert first.receipts == second.receipts == self.live
        assert first.rows == second.rows
        assert first.number == second.number == len(self.history) - 1
        assert [(r.begun, r.ended) for r in first.runs] == [
            (r.begun, r.ended) for r in second.runs
        ]
        for receipt in self.live.values():
            got, expected = (s.read(receipt, ["loss", "weights"]) for s in self.both)
            for name, array in expected.items():
                np.testing.assert_array_equal(got[name], array)


StoresAgree.TestCase.settings = settings(
    max_examples=20, stateful_step_count=15, deadline=None
)
test_the_local_and_the_memory_store_agree_with_dictionaries = StoresAgree.TestCase
