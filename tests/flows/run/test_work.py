"""The loop over a runner that has several tiles out at once."""

from contextlib import contextmanager

import pytest

from curvflow.errors import Stopped, StoreError
from curvflow.flows.graph import tiles
from curvflow.flows.run import run as run_module
from curvflow.flows.run.compute import Snapshots, carried_out
from curvflow.flows.run.runners.base import Died, Interrupted
from curvflow.flows.run.runners.inline import ThisProcess
from curvflow.schemas.nodes import Outcome
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.registry import computes
from tests.flows import toys
from tests.flows.toys import run

ROOM = 4


class Many:
    """Holds several tiles, and then computes all of them; fates can be given."""

    fates = ()

    def __init__(self, store, process, partials):
        self.store, self.process, self.partials = store, process, partials
        self.jobs, self.count = {}, 0
        self.left = list(self.fates)

    def room(self, needs):
        return ROOM - len(self.jobs)

    def submit(self, job, *, needs, priority):
        self.count += 1
        self.jobs[self.count] = job
        return self.count

    def withdraw(self):
        numbers, self.jobs = list(self.jobs), {}
        return numbers

    def wait(self, seconds):
        came = list(self.jobs.items())
        self.jobs = {}
        return [(number, self.fate(job)) for number, job in came]

    def fate(self, job):
        if self.left and job.kind == "toy.fit":
            return self.left.pop(0)
        machine = self.process.machine(job.kind)
        return carried_out(self.store, job, machine, self.partials)


@pytest.fixture(autouse=True)
def several(monkeypatch):
    """Run all tiles by such a runner; return its class, whose fates can be set."""
    monkeypatch.setattr(tiles, "MAX_WIDTH", 2)
    monkeypatch.setattr(Many, "fates", ())

    @contextmanager
    def opening(context):
        partials = Snapshots(context.store, context.stop, tell=context.observer.tell)
        with ThisProcess(context.options) as process:
            yield lambda _: Many(context.store, process, partials)

    monkeypatch.setattr(run_module, "open_runner", opening)
    return Many


def digests(store):
    return {key: receipt.digest for key, receipt in store.index().receipts.items()}


def payload_of(folder, stage):
    receipts = LocalStore(folder).index().receipts.values()
    (payload,) = {receipt.payload for receipt in receipts if receipt.stage == stage}
    (path,) = folder.rglob(f"{payload}*")
    return path


def test_several_tiles_at_once_end_as_one_after_another(monkeypatch):
    together = MemoryStore()
    counts = run(together).record.counts
    monkeypatch.undo()
    alone = MemoryStore()
    assert counts == run(alone).record.counts
    assert digests(together) == digests(alone)


def test_two_tiles_that_meet_one_lost_payload_heal_it_once(tmp_path):
    folder = tmp_path / "store"
    run(LocalStore(folder))
    path = payload_of(folder, "data")
    data = bytearray(path.read_bytes())
    data[60::97] = bytes(len(data[60::97]))
    path.write_bytes(data)
    record = run(LocalStore(folder), "stages.fit.epochs=6").record
    assert record.counts["executed"]["data"] == 1
    assert record.counts["executed"]["fit"] == 6
    assert record.failures == []


def test_old_company_is_computed_once_and_counted_once(tmp_path, monkeypatch):
    def sociable(members, machine):
        bits = 2.0**-50 * len(members)
        return [
            Outcome({**outcome.arrays, "final": outcome.arrays["final"] + bits})
            for outcome in toys._fit(members, machine)
        ]

    folder = tmp_path / "store"
    computes("toy.fit")(sociable)
    monkeypatch.setattr(tiles, "MAX_WIDTH", 8)
    run(LocalStore(folder))
    before = digests(LocalStore(folder))
    path = payload_of(folder, "fit")
    LocalStore(folder).evict([path.name.partition(".")[0]], "removed")
    path.unlink()
    monkeypatch.setattr(tiles, "MAX_WIDTH", 2)
    toys.WIDTHS.clear()
    o = toys.opened(LocalStore(folder))
    options = toys.RunOptions(workers=1)
    report = run_module.run_study(
        o.study, o.store, o.files, options=options, revive=["fit"]
    )
    assert toys.WIDTHS == [2, 2, 2, 6]
    assert report.record.counts["executed"]["fit"] == 6
    assert report.record.counts["cached"]["fit"] == 0
    assert report.revived == {"fit": 6}
    assert digests(LocalStore(folder)) == before


def test_a_tile_whose_process_dies_is_tried_again_then_in_halves(several):
    several.fates = [Died("worker a died")] * 2
    store = MemoryStore()
    record = run(store, "axes.seed=1").record  # two nodes, one tile
    assert record.failures == []
    assert record.counts["executed"]["fit"] == 2
    widths = [r.width for r in store.index().receipts.values() if r.stage == "fit"]
    assert widths == [1, 1]


def test_a_tile_whose_process_died_once_is_computed_whole(several):
    several.fates = [Died("worker a died")]
    store = MemoryStore()
    run(store, "axes.seed=1")
    widths = [r.width for r in store.index().receipts.values() if r.stage == "fit"]
    assert widths == [2, 2]


def test_a_node_whose_process_always_dies_fails_by_name_alone(several):
    several.fates = [Died("worker a died")] * 1000
    store = MemoryStore()
    record = run(store, "axes.seed=1", "axes.rule={slow: {lr: 0.25}}").record
    (failure,) = record.failures
    assert failure["stage"] == "fit"
    assert failure["error"] == "the process that computed it died twice: worker a died"
    assert record.counts["failed"]["fit"] == 1


def test_a_tile_whose_worker_took_the_run_for_gone_costs_no_failure(several):
    several.fates = [Interrupted(15)] * 20
    record = run(MemoryStore()).record
    assert record.failures == []
    assert record.counts["executed"]["fit"] == 6


def test_workers_that_never_see_the_run_end_it_on_one_line(several):
    several.fates = [Interrupted(15)] * 1000
    with pytest.raises(StoreError, match="heartbeat"):
        run(MemoryStore())


def test_failed_and_blocked_nodes_are_counted_once(several):
    record = run(MemoryStore(), "axes.seed=[0, 13]").record
    assert record.counts["failed"]["fit"] == 2
    assert record.counts["executed"]["fit"] == 2
    assert [failure["stage"] for failure in record.failures] == ["fit", "fit"]


def test_tiles_that_have_not_begun_are_left_when_the_run_is_to_end(monkeypatch):
    store, real = MemoryStore(), Many.submit

    def submit(self, job, **asked):
        if job.kind == "toy.fit":
            self.partials.stop.signal = 15
        return real(self, job, **asked)

    monkeypatch.setattr(Many, "submit", submit)
    with pytest.raises(Stopped):
        run(store)
    assert toys.CALLS["toy.points"] == 1
    assert toys.CALLS["toy.fit"] == 0
