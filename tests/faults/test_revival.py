"""What collection removed comes back when needed, alone, and is what it was."""

import pytest

from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study
from curvflow.schemas.nodes import Outcome
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.registry import computes
from tests.faults.children import begun, digests
from tests.faults.long import Long
from tests.flows import toys
from tests.flows.run.test_run import executed
from tests.flows.toys import WIDTHS, opened, run

pytestmark = pytest.mark.processes

MORE = "stages.more={use: toy.probe, weights: fit, at: [2], scale: 5.0}"
ONE = ("axes.seed=1", "axes.rule={slow: {lr: 0.25}}", MORE)


class Watcher(Unwatched):
    """Keeps the warnings, and does something once the plan is made."""

    def __init__(self, then=lambda: None):
        self.warnings, self.then = [], then

    def begin(self, plan):
        self.then()

    def warn(self, message):
        self.warnings.append(message)


@pytest.fixture
def folder(tmp_path):
    run(LocalStore(tmp_path / "store"))
    WIDTHS.clear()
    return tmp_path / "store"


def remove(folder, stage="fit"):
    """Remove a stage's payloads as collection does; their receipts stand."""
    store = LocalStore(folder)
    receipts = [r for r in store.index().receipts.values() if r.stage == stage]
    store.evict(sorted({r.payload for r in receipts}), "collected")
    for path in {p for r in receipts for p in folder.rglob(f"{r.payload}*")}:
        path.unlink()


def observed(folder, *overrides, then=lambda: None):
    watcher = Watcher(then)
    o = opened(LocalStore(folder), *overrides)
    return run_study(o.study, o.store, o.files, observer=watcher), watcher.warnings


def plan(folder, *overrides):
    o = opened(LocalStore(folder), *overrides)
    return make_plan(o.study, o.store, o.files)


def test_a_study_whose_training_was_collected_is_done(folder):
    remove(folder)
    assert plan(folder).counts()["stale"] == 0
    assert executed(run(LocalStore(folder))) == {}


def test_a_new_probe_revives_the_one_net_it_takes_and_nothing_else(folder):
    before = digests(LocalStore(folder))
    remove(folder)
    assert plan(folder, *ONE).counts("fit")["stale"] == 1
    report = run(LocalStore(folder), *ONE)
    assert executed(report) == {"fit": 1, "more": 1, "mean": 1}
    after = LocalStore(folder).index()
    assert before.items() <= digests(LocalStore(folder)).items()
    (fit,) = [n.receipt for n in report.plan.graph.nodes["fit"]]
    assert LocalStore(folder).read(after.receipts[fit.key], list(fit.parts))
    assert executed(run(LocalStore(folder), *ONE)) == {}


def test_last_bits_that_depend_on_company_come_back_in_the_old_company(tmp_path):
    def sociable(members, machine):
        outcomes = toys._fit(members, machine)
        bits = 2.0**-50 * len(members)
        return [
            Outcome({**one.arrays, "final": one.arrays["final"] + bits})
            for one in outcomes
        ]

    computes("toy.fit")(sociable)
    folder = tmp_path / "store"
    run(LocalStore(folder))
    run(LocalStore(folder), "axes.rule={slow: {lr: 0.25}}", MORE)
    before = digests(LocalStore(folder))
    remove(folder)
    WIDTHS.clear()
    report, warnings = observed(folder, MORE)  # takes those of the other rule
    assert WIDTHS == [3, 6]  # three by themselves, and then as before
    assert executed(report) == {"fit": 6, "more": 3}
    assert before.items() <= digests(LocalStore(folder)).items()
    assert warnings == []


def test_a_result_that_comes_back_different_is_reported_and_moves_what_takes_it(folder):
    old = digests(LocalStore(folder))
    remove(folder)

    def moody(members, machine):
        outcomes = toys._fit(members, machine)
        return [
            Outcome({**one.arrays, "weights": one.arrays["weights"] + 0.1})
            for one in outcomes
        ]

    computes("toy.fit")(moody)
    report, warnings = observed(folder, MORE)
    assert any("it came out different" in warning for warning in warnings)
    assert executed(report)["last"] == 6
    assert executed(report)["path"] == 15
    expected = MemoryStore()
    clean = run(expected, MORE)
    wanted = {node.key: node.receipt.digest for node in clean.plan.graph}
    live = digests(LocalStore(folder))
    assert {key: live[key] for key in wanted} == wanted
    assert any(live[key] != digest for key, digest in old.items())
    assert plan(folder, MORE).counts()["stale"] == 0


@pytest.mark.parametrize("stage", ["data", "fit", "last"])
def test_a_payload_collected_after_the_plan_was_made_is_revived(folder, stage):
    before = digests(LocalStore(folder))
    report, _ = observed(
        folder, MORE, "stages.mean.of=[last, more]", then=lambda: remove(folder, stage)
    )
    assert report.record.failures == []
    assert executed(report)["more"] == 6
    expected = MemoryStore()
    run(expected)
    run(expected, MORE, "stages.mean.of=[last, more]")
    assert digests(LocalStore(folder)) == digests(expected) | before


def test_a_payload_that_is_lost_after_the_plan_was_made_heals(folder):
    def lose():
        fits = LocalStore(folder).index().receipts.values()
        (payload,) = {r.payload for r in fits if r.stage == "fit"}
        next(folder.rglob(f"{payload}*")).unlink()

    report, warnings = observed(folder, MORE, then=lose)
    assert executed(report)["fit"] == 6
    assert warnings
    expected = MemoryStore()
    run(expected)
    run(expected, MORE)
    assert digests(LocalStore(folder)) == digests(expected)


@pytest.mark.slow
def test_a_trained_net_that_was_collected_is_trained_again_to_the_same_bits(tmp_path):
    long = Long(tmp_path / "study")
    long.run()
    before, times = long.digests, begun(long.store)
    remove(tmp_path / "study" / ".curvflow")
    long.run("axes.seed=1", "stages.more={use: probe.norms, weights: fit, at: [30]}")
    again = begun(long.store) - times
    stages = [long.store.index().receipts[key].stage for key in again]
    assert sorted(stages) == ["fit", "more", "table"]
    assert before.items() <= long.digests.items()
    assert set(again.values()) == {1}
