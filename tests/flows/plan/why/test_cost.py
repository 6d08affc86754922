"""Time predicted from receipts."""

from dataclasses import replace

import pytest

from curvflow.flows.plan.plan import make_plan
from curvflow.flows.plan.why.cost import Costs, saved_seconds, start_seconds
from curvflow.schemas import kinds
from curvflow.schemas.kind import Continues
from curvflow.schemas.records.records import time_variables
from tests.flows.toys import FIT, STUDY, opened, run


@pytest.fixture
def timed(store, monkeypatch):
    """Let each node of a run have taken 2 s, of training 4 s."""
    run(store)
    index = store.index

    def slow(as_of=None):
        index_then = index(as_of)
        for table in (index_then.rows, index_then.receipts):
            for place, receipt in table.items():
                seconds = 4.0 if receipt.kind == "toy.fit" else 2.0
                table[place] = replace(receipt, seconds=seconds)
        return index_then

    monkeypatch.setattr(store, "index", slow)
    return store


def predicted(store, *overrides, text=STUDY):
    o = opened(store, *overrides, text=text)
    plan = make_plan(o.study, o.store, o.files)
    todo = [node for node in plan.graph if node.state != "cached"]
    return Costs(plan.graph, plan.index).predicted(todo)


def test_a_start_takes_what_runs_took_besides_computing(store):
    assert start_seconds(store.index()) is None
    run(store)
    index = store.index()
    (first,) = index.runs
    spent = sum(receipt.seconds for receipt in index.rows.values())
    assert start_seconds(index) == pytest.approx(first.seconds - spent)
    run(store)  # computes nothing, and so loads nothing
    assert start_seconds(store.index()) == start_seconds(index)


@pytest.mark.parametrize(
    "change", [{"options": {"workers": 2}}, {"ended": None}, {"seconds": 0.0}]
)
def test_runs_of_several_workers_or_cut_short_report_no_start(store, change):
    run(store)
    index = store.index()
    index.runs[:] = [replace(run_record, **change) for run_record in index.runs]
    assert start_seconds(index) is None


def test_new_seeds_take_as_long_as_their_siblings(timed):
    costs = predicted(timed, "axes.seed=4")
    assert (costs.nodes, costs.rough, costs.unknown) == (12, 0, 0)
    assert costs.seconds == 2 * 4 + (2 + 6 + 2) * 2


def test_other_parameters_make_a_prediction_rough(timed):
    costs = predicted(timed, "stages.last.scale=2.0")
    assert (costs.nodes, costs.rough) == (8, 8)


def test_what_stands_on_an_unlike_node_is_rough_too(timed):
    costs = predicted(timed, "stages.data.count=9")
    assert costs.nodes == costs.rough == 33


def test_kinds_never_computed_are_of_unknown_cost(store):
    costs = predicted(store)
    assert (costs.seconds, costs.unknown) == (0, costs.nodes)


def test_time_is_proportional_to_what_a_kind_goes_on_in(timed, monkeypatch):
    continues = Continues("epochs", lambda shorter, longer: False)
    monkeypatch.setitem(kinds._added, "toy.fit", replace(FIT, continues=continues))
    text = STUDY[: STUDY.index("  last:")]
    costs = predicted(timed, "stages.fit.epochs=12", text=text)
    assert costs.seconds == pytest.approx(6 * 12.0)
    assert costs.rough == 0


@pytest.fixture
def continuing(monkeypatch):
    """Let training go on from shorter training, whose code must be known for that."""
    continues = Continues("epochs", lambda shorter, longer: True)
    fit = replace(FIT, continues=continues, home="tests.flows.toys:_fit")
    monkeypatch.setitem(kinds._added, "toy.fit", fit)


def test_only_the_rest_counts_where_a_shorter_result_is_gone_on_from(continuing, timed):
    text = STUDY[: STUDY.index("  last:")]
    costs = predicted(timed, "stages.fit.epochs=12", text=text)
    assert costs.seconds == pytest.approx(6 * 8.0)


@pytest.fixture
def a_second_an_epoch(store, monkeypatch):
    """Let training have taken a second for every epoch computed, where it is known."""
    index = store.index

    def slow(as_of=None):
        index_then = index(as_of)
        for table in (index_then.rows, index_then.receipts):
            for place, receipt in table.items():
                seconds = float(receipt.covered or 1)
                table[place] = replace(receipt, seconds=seconds)
        return index_then

    monkeypatch.setattr(store, "index", slow)
    return store


def test_continued_training_is_counted_by_the_epochs_it_computed(
    continuing, a_second_an_epoch
):
    run(a_second_an_epoch)
    run(a_second_an_epoch, "stages.fit.epochs=40")
    text = STUDY[: STUDY.index("  last:")]
    costs = predicted(
        a_second_an_epoch, "stages.fit.epochs=80", "axes.seed=4", text=text
    )
    assert costs.seconds == pytest.approx(6 * 40 + 2 * 80)


def test_receipts_that_know_their_epochs_are_considered_before_others(
    continuing, a_second_an_epoch, monkeypatch
):
    run(a_second_an_epoch)
    run(a_second_an_epoch, "stages.fit.epochs=40")
    index = a_second_an_epoch.index

    def forgetful(as_of=None):
        index_then = index(as_of)
        for key, receipt in index_then.rows.items():
            if receipt.covered == 36:
                index_then.rows[key] = replace(receipt, seconds=99.0, covered=None)
        return index_then

    monkeypatch.setattr(a_second_an_epoch, "index", forgetful)
    text = STUDY[: STUDY.index("  last:")]
    costs = predicted(a_second_an_epoch, "stages.fit.epochs=80", text=text)
    assert costs.seconds == pytest.approx(6 * 40)


def test_what_is_saved_is_what_the_results_once_took(timed):
    o = opened(timed)
    plan = make_plan(o.study, o.store, o.files)
    nodes = {node.key for node in plan.graph}
    assert saved_seconds(plan.graph) == 6 * 4 + (len(nodes) - 6) * 2


CHAINS = """
study: chains
axes: {seed: 2}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [2]}, epochs: 1,
        rule: {rule: sgd, lr: 0.1}}
  llc: {use: probe.llc, weights: fit, seed: "${seed}", calibrate: none,
        sampling_method: sgld, lr: 1.0e-6, localization: 1.0, batch_size: 2,
        num_burnin_steps: 90, num_draws: 10, num_chains: 2, num_steps_bw_draws: 2}
"""


@pytest.fixture
def a_hundred_seconds(store, monkeypatch):
    """Let each node have taken 100 s, whatever it computed."""
    index = store.index

    def slow(as_of=None):
        index_then = index(as_of)
        for table in (index_then.rows, index_then.receipts):
            for place, receipt in table.items():
                table[place] = replace(receipt, seconds=100.0)
        return index_then

    run(store, text=CHAINS)
    monkeypatch.setattr(store, "index", slow)
    return store


def test_chains_go_on_without_their_burn_in(a_hundred_seconds):
    store = a_hundred_seconds
    receipts = [r for r in store.index().rows.values() if r.kind == "probe.llc"]
    told_of = ["gradient_equivalents", "calibration_equivalents"]
    whole, calibration = store.read(receipts[0], told_of).values()
    # Two chains, whose steps take half of the four points each.
    once = (float(calibration) + 2 * 90 / 2) / float(whole)
    assert 0.5 < once < 0.9
    costs = predicted(store, "stages.llc.num_draws=30", text=CHAINS)
    assert costs.seconds == pytest.approx(2 * 20 * 10 * (1 - once))
    # New seeds have to burn in too.
    assert predicted(store, "axes.seed=3", text=CHAINS).seconds == pytest.approx(100)


def test_what_went_on_before_predicts_best_how_long_going_on_takes(a_hundred_seconds):
    store = a_hundred_seconds
    run(store, "stages.llc.num_draws=30", text=CHAINS)
    costs = predicted(store, "stages.llc.num_draws=40", text=CHAINS)
    assert costs.seconds == pytest.approx(2 * 10 * 100 / 20)


def test_the_time_of_a_draw_says_what_it_includes():
    (_, of_draws), (_, of_epochs) = (
        time_variables(kinds.find_kind(name)) for name in ("probe.llc", "train")
    )
    assert "calibration and burn-in of a first run included" in of_draws.description
    assert "burn-in" not in of_epochs.description
