"""Verification reads everything, and what it finds is computed again."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import StoreError
from curvflow.flows.run.run import run_study
from curvflow.flows.upkeep.collect import collect
from curvflow.flows.upkeep.verify import verify
from curvflow.stores import log
from curvflow.stores.local import LocalStore
from tests.flows.run.test_run import executed
from tests.flows.toys import opened, run
from tests.flows.upkeep.test_collect import ReadOnly, files, shift


@pytest.fixture
def folder(tmp_path):
    run(LocalStore(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def local(folder):
    return LocalStore(folder)


def payload_of(folder, stage):
    index = LocalStore(folder).index()
    name = next(r.payload for r in index.receipts.values() if r.stage == stage)
    (path,) = folder.glob(f"payloads/*/{name}*")
    return path


def flip(path):
    data = bytearray(path.read_bytes())
    place = data.index(b"\x28\xb5\x2f\xfd") + 6  # within a chunk, after zstd's magic
    data[place] ^= 1
    path.write_bytes(bytes(data))


def swap(path, other):
    """Put a sound payload under another's name."""
    path.write_bytes(other.read_bytes())


def digests(store):
    return {key: receipt.digest for key, receipt in store.index().receipts.items()}


def test_a_sound_store_is_well_and_stays_as_it_is(folder, local):
    before, progress = files(folder), []
    verdict = verify(local, progress=lambda read, total: progress.append((read, total)))
    assert verdict.is_well
    assert verdict.results == len(local.index().receipts)
    sizes = [path.stat().st_size for path in folder.glob("payloads/*/*")]
    assert verdict.bytes == sum(sizes)
    assert progress[-1] == (verdict.bytes, verdict.bytes)
    assert files(folder) == before


def test_an_empty_store_is_well(store, tmp_path):
    assert verify(store).is_well
    assert verify(LocalStore(tmp_path / "none")).is_well
    assert not (tmp_path / "none").exists()


def test_a_store_in_memory_is_verified_too(store):
    run(store)
    assert verify(store).is_well
    name = next(r.payload for r in store.index().receipts.values() if r.stage == "fit")
    store._payloads[name]["loss"][0] += 1
    (fault,) = verify(store).faults
    assert fault.payload == name
    assert store.present([name]) == set()
    assert executed(run(store)) == {"fit": 6}


@pytest.mark.parametrize("damage", [flip, lambda p: p.unlink()], ids=["flip", "lose"])
def test_what_is_damaged_is_struck_off_and_computed_again(folder, local, damage):
    before, path = digests(local), payload_of(folder, "fit")
    damage(path)
    gone = not path.exists()
    verdict = verify(local)
    (fault,) = verdict.faults
    assert {receipt.stage for receipt in fault.lost} == {"fit"}
    assert len(verdict.lost) == 6
    assert not path.exists()
    assert bool(list(folder.glob(f"quarantine/*/{path.name}"))) != gone
    again = verify(local)
    assert again.is_well
    assert again.results == verdict.results - (0 if gone else 6)
    assert executed(run(LocalStore(folder))) == {"fit": 6}
    assert digests(LocalStore(folder)) == before
    assert verify(LocalStore(folder)).is_well


def test_another_payload_under_the_name_is_found(folder, local):
    swap(payload_of(folder, "last"), payload_of(folder, "path"))
    (fault,) = verify(local).faults
    assert "not what was written" in fault.problem


def test_a_receipt_that_says_another_digest_is_found(folder, local):
    path = payload_of(folder, "last")
    first = next(r for r in local.index().receipts.values() if r.stage == "last")
    arrays = local.read_payload(first.payload)
    twin = local.write_payload({"square": np.array(arrays["square"]) + 1})
    local.retire([first.key], "test")
    local.commit([replace(first, payload=twin, slot=0)])
    (fault,) = verify(local).faults
    assert fault.payload == twin
    assert "not what was computed" in fault.problem
    assert path.exists()


def test_a_dry_run_only_reports(folder, local):
    flip(payload_of(folder, "fit"))
    (folder / "commits" / "0000000002.json").write_bytes(b"torn")
    before, number = files(folder), local.index().number
    verdict = verify(LocalStore(folder), mend=False)
    assert (len(verdict.faults), verdict.torn) == (1, [2])
    assert files(folder) == before
    assert LocalStore(folder).index().number == number
    frozen = LocalStore(folder, disk=ReadOnly())
    assert len(verify(frozen, mend=False).faults) == 1
    with pytest.raises(StoreError, match="Read-only"):
        verify(frozen)


def test_what_is_damaged_in_the_trash_is_moved_away_and_can_be_revived(folder, local):
    run(local, "axes.seed=2")
    damaged = payload_of(folder, "path")
    shift(folder, -7200)
    collect(local, keep_runs=0)
    (path,) = folder.glob(f"trash/*/{damaged.name}")
    flip(path)
    fresh = LocalStore(folder)
    (fault,) = verify(fresh).faults
    assert (fault.payload, fault.lost) == (path.name.partition(".")[0], [])
    assert verify(fresh).is_well
    assert [p.name for p in folder.glob("quarantine/*/*")] == [path.name]
    o = opened(fresh)
    report = run_study(o.study, o.store, o.files, revive=["path"])
    assert report.revived["path"] > 0
    assert payload_of(folder, "path").name == path.name


@pytest.mark.parametrize("lost", [False, True])
def test_torn_commits_are_replaced_and_nobody_warns_again(folder, caplog, lost):
    path = folder / "commits" / "0000000003.json"
    if lost:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING):
        assert verify(LocalStore(folder)).torn == [3]
    assert path.exists()
    caplog.clear()
    log._reported.clear()
    with caplog.at_level(logging.WARNING):
        fresh = LocalStore(folder)
        assert fresh.index().void == [3]
        assert fresh.torn_entries() == []
        assert verify(fresh).is_well
    assert caplog.records == []
    run(LocalStore(folder))
    assert verify(LocalStore(folder)).is_well


def test_a_commit_that_can_be_read_after_all_is_left_alone(folder, local):
    path = folder / "commits" / "0000000003.json"
    before = path.read_bytes()
    local.write_tombstones([3])
    assert path.read_bytes() == before


def test_what_collection_has_removed_is_no_fault(folder, local):
    run(local, "stages.fit.epochs=6")
    collect(local, keep_runs=1)
    assert verify(local).is_well
    collect(local, keep_runs=1)
    verdict = verify(local)
    assert verdict.is_well
    assert verdict.evicted > 0


def test_a_damaged_payload_that_collection_gave_up_costs_no_receipt(folder, local):
    path = payload_of(folder, "fit")
    local.evict([path.name.partition(".")[0]], "collected")  # and killed
    flip(path)
    before = digests(local)
    verdict = verify(local)
    assert [list(fault.lost) for fault in verdict.faults] == [[]]
    assert not path.exists()
    assert digests(local) == before
    assert executed(run(local)) == {}


def healer(folder):
    """Return what runs a study again once all has been read."""

    def tell(read, total):
        if read == total:
            run(LocalStore(folder), "axes.seed=4")

    return tell


@pytest.mark.parametrize("mend", [True, False])
@pytest.mark.parametrize("damage", [flip, lambda p: p.unlink()], ids=["flip", "lose"])
def test_what_a_run_heals_meanwhile_is_left_alone(folder, local, mend, damage):
    before, path = digests(local), payload_of(folder, "data")
    sound = path.read_bytes()
    damage(path)
    verdict = verify(local, mend=mend, progress=healer(folder))
    assert path.read_bytes() == sound
    assert verdict.is_well
    assert (verdict.lost, verdict.mended) == ([], False)
    assert before.items() <= digests(local).items()
    assert not (folder / "quarantine").exists()


def test_a_result_that_was_struck_off_meanwhile_is_not_counted_as_lost(folder, local):
    path = payload_of(folder, "fit")
    keys = [r.key for r in local.index().receipts.values() if r.stage == "fit"]
    flip(path)

    def tell(read, total):
        if read == total:
            LocalStore(folder).retire(keys, "seen by another")

    (fault,) = verify(local, progress=tell).faults
    assert fault.lost == []
    assert not path.exists()


def test_what_collection_moves_meanwhile_is_no_fault(folder, local):
    path = payload_of(folder, "fit")
    name = path.name.partition(".")[0]
    flip(path)

    def tell(read, total):
        if read == total:
            LocalStore(folder).evict([name], "collected")
            path.unlink()

    assert verify(local, progress=tell).is_well
