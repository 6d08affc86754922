"""Out of memory: tiles get narrower, and results stay what they are."""

import pytest

import curvflow.flows.graph.tiles as tiles
import curvflow.flows.run.compute as compute
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.registry import computes
from tests.faults.children import digests
from tests.flows import toys
from tests.flows.run.test_run import executed
from tests.flows.toys import WIDTHS, run

STUDY = (f"axes.seed={list(range(14, 38))}",)  # two rules: 48 nodes share tiles
OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator"),
]


def greedy(error, fits):
    """Let the toy training have memory for so many members and no more."""

    def fit(members, machine):
        if len(members) > fits:
            WIDTHS.append(len(members))
            raise error
        return toys._fit(members, machine)

    computes("toy.fit")(fit)


@pytest.fixture
def roomy(monkeypatch):
    """Return a store of the same study where memory sufficed."""
    monkeypatch.setattr(tiles, "MAX_WIDTH", 16)
    store = MemoryStore()
    run(store, *STUDY)
    assert WIDTHS == [16] * 3
    WIDTHS.clear()
    return store


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["python", "gpu", "cpu"])
def test_a_tile_that_does_not_fit_is_halved_and_so_are_those_after_it(roomy, error):
    store = MemoryStore()
    greedy(error, 4)
    report = run(store, *STUDY)
    assert report.record.failures == []
    assert WIDTHS == [16, 8, 4, 4, 8, 4, 4] + [4] * 8
    assert digests(store) == digests(roomy)
    fits = [r for r in store.index().receipts.values() if r.stage == "fit"]
    assert {receipt.width for receipt in fits} == {4}


def test_a_member_that_fails_alone_makes_no_tile_narrower(roomy):
    # Seed 13 fails whatever its company.
    report = run(MemoryStore(), f"axes.seed={list(range(13, 29))}")
    assert report.record.counts["failed"]["fit"] == 2
    assert WIDTHS.count(16) == 2


def test_a_tile_with_little_left_to_do_makes_no_tile_narrower(roomy):
    store = MemoryStore()
    run(store, f"axes.seed={list(range(15, 22))}")
    WIDTHS.clear()
    run(store, *STUDY)
    assert WIDTHS == [2, 16, 16]


def test_what_fits_nowhere_fails_by_name_and_spares_the_others(roomy):
    greedy(MemoryError("no room for two"), 1)
    report = run(MemoryStore(), "axes.seed=2")
    assert executed(report) == {"data": 1}
    assert {one["stage"] for one in report.record.failures} == {"fit"}
    assert "MemoryError: no room for two" in report.record.failures[0]["error"]


def test_inputs_that_do_not_fit_together_are_read_in_halves(roomy, monkeypatch):
    def scarce(store, kind, jobs):
        if kind.name == "toy.probe" and len(jobs) > 4:
            raise MemoryError
        return load(store, kind, jobs)

    load = compute.load
    monkeypatch.setattr(compute, "load", scarce)
    store = MemoryStore()
    assert run(store, *STUDY).record.failures == []
    assert digests(store) == digests(roomy)
    widths = {r.width for r in store.index().receipts.values() if r.stage == "last"}
    assert widths == {4}


def test_an_input_that_fits_nowhere_fails_its_node_by_name(monkeypatch):
    def none_left(store, kind, jobs):
        if kind.name == "toy.probe":
            raise MemoryError("no room for weights")
        return load(store, kind, jobs)

    load = compute.load
    monkeypatch.setattr(compute, "load", none_left)
    report = run(MemoryStore())
    assert executed(report) == {"data": 1, "fit": 6}
    assert report.record.counts["failed"]["last"] == 6
    assert "MemoryError: no room for weights" in report.record.failures[0]["error"]
