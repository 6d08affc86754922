"""Training that stops each model where its loss is low enough."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import Stopped
from curvflow.schemas.kinds.train import KIND, TrainParams
from curvflow.schemas.nodes import NodeData
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.train import member_bytes
from tests.tasks.partials import Steps
from tests.tasks.toys import SGD, TANH_NET, assert_declared, blobs, train_all
from tests.tasks.toys import train_member as member

ADAM = {"rule": "adam", "lr": 0.1}
STILL = {"rule": "sgd", "lr": 0.05}
SWA = {"rule": "swa", "lr": 0.1, "start": 3}
ONE = {**TANH_NET, "hidden": [3]}
FIXED = {"model": ONE, "batch_size": 8, "checkpoints": {"every": 2}}
RULES = (SGD, ADAM, STILL, SWA)
UNTIL = {"train_loss": 0.8}


def tile(epochs=14, rules=RULES, until=UNTIL, **settings):
    fixed = {**FIXED, **settings}
    return [
        member(blobs(20), rule=rule, seed=n, epochs=epochs, until=until, **fixed)
        for n, rule in enumerate(rules)
    ]


def assert_equal(result, expected):
    for first, other in zip(result, expected, strict=True):
        assert (first.status, first.reason) == (other.status, other.reason)
        assert first.arrays.keys() == other.arrays.keys()
        for name, array in first.arrays.items():
            assert array.tobytes() == other.arrays[name].tobytes(), name


def reached(outcomes):
    epochs = [float(outcome.arrays["reached_epoch"]) for outcome in outcomes]
    return [-1 if np.isnan(epoch) else int(epoch) for epoch in epochs]


def first_below(outcome, loss):
    below = np.flatnonzero(outcome.arrays["train_loss"] <= loss)
    return int(outcome.arrays["epoch"][below[0]]) if len(below) else -1


def test_each_model_stops_at_its_first_epoch_that_is_low_enough():
    free, result = train_all(tile(until=None)), train_all(tile())
    assert reached(result) == [first_below(outcome, 0.8) for outcome in free]
    assert len(set(reached(result))) > 2
    assert -1 in reached(result)


def test_what_stands_is_what_training_of_so_many_epochs_gives():
    """Each model against a training of its own that ends where it stopped."""
    result = train_all(tile())
    pairs = zip(result, reached(result), strict=True)
    for number, (stopped, epoch) in enumerate(pairs):
        if epoch < 1:
            continue
        (alone,) = train_all(
            [member(blobs(20), rule=RULES[number], seed=number, epochs=epoch, **FIXED)]
        )
        for name in ("final_train_loss", "final_norm_l2", "norm_tensor_sum"):
            assert stopped.arrays[name] == pytest.approx(alone.arrays[name], rel=1e-9)
        for name in ("weights", "update_norm", "train_loss", "lr"):
            last = alone.arrays[name][-1]
            np.testing.assert_allclose(stopped.arrays[name][-1], last, rtol=1e-8)
        np.testing.assert_allclose(
            stopped.arrays["rule_state"], alone.arrays["rule_state"], rtol=1e-8
        )
        assert stopped.arrays["num_gradients"] == epoch


def test_values_and_weights_of_later_epochs_are_those_of_the_stop():
    result = train_all(tile())
    for outcome, epoch in zip(result, reached(result), strict=True):
        arrays = outcome.arrays
        assert arrays["reached"] == (epoch >= 0)
        if epoch >= 0:
            later = arrays["epoch"] >= epoch
            assert (np.ptp(arrays["train_loss"][later]) == 0).all()
            kept = arrays["weights"][arrays["checkpoint"] >= epoch]
            assert (kept == kept[-1]).all()
            assert arrays["final_train_loss"] <= 0.8


def test_a_loss_that_is_not_reached_is_reported_and_changes_nothing():
    free = train_all(tile(until=None))
    for first, other in zip(
        train_all(tile(until={"train_loss": 1e-9})), free, strict=True
    ):
        assert (first.status, first.arrays["reached"]) == ("ok", False)
        assert np.isnan(first.arrays["reached_epoch"])
        for name, array in other.arrays.items():
            assert array.tobytes() == first.arrays[name].tobytes(), name


def test_a_start_that_is_low_enough_is_not_trained():
    (outcome,) = train_all(tile(rules=(STILL,), until={"train_loss": 100.0}))
    assert (outcome.arrays["reached_epoch"], outcome.arrays["num_gradients"]) == (0, 0)
    assert (outcome.arrays["weights"] == outcome.arrays["weights"][0]).all()


def test_training_ends_when_nobody_is_left():
    partial = Steps()
    find("train").compute(
        tile(rules=(STILL, STILL), until={"train_loss": 100.0}), Machine("cpu", partial)
    )
    assert partial.count == 0


@pytest.mark.parametrize("every", [1, 5])
def test_the_stop_does_not_depend_on_what_is_recorded(every):
    result = train_all(tile(record_every=every, checkpoints=None))
    expected = train_all(tile())
    assert reached(result) == reached(expected)
    for first, other in zip(result, expected, strict=True):
        assert first.arrays["final_train_loss"] == other.arrays["final_train_loss"]
        np.testing.assert_array_equal(
            first.arrays["weights"][-1], other.arrays["weights"][-1]
        )


def test_a_model_that_blows_up_after_its_stop_has_not_diverged():
    wild = {
        "rule": "sgd",
        "lr": 0.05,
        "schedule": {"kind": "step", "at": [6], "factor": 1e9},
    }
    calm = {**wild, "lr": 1e-6}
    stops, goes_on = train_all(tile(rules=(wild, calm), until={"train_loss": 1.0}))
    assert 0 <= stops.arrays["reached_epoch"] <= 6
    assert stops.status == "ok"
    assert np.isfinite(stops.arrays["weights"]).all()
    (free, _) = train_all(tile(rules=(wild, calm), until=None))
    assert free.status == "diverged"
    assert np.isnan(goes_on.arrays["reached_epoch"])


@pytest.mark.parametrize("stop", [4, 11, 23])
def test_a_stopped_tile_is_resumed_to_the_same_bits(stop):
    expected = train_all(tile())
    partial = Steps(stop=stop)
    with pytest.raises(Stopped):
        find("train").compute(tile(), Machine("cpu", partial))
    again = Steps(partial.kept)
    assert_equal(find("train").compute(tile(), Machine("cpu", again)), expected)
    assert again.count < 42


@pytest.mark.parametrize("short", [1, 6, 9])
@pytest.mark.parametrize("settings", [{}, {"record_every": 3, "checkpoints": None}])
def test_longer_training_goes_on_as_if_it_had_never_stopped(short, settings):
    rules = (SGD, ADAM, STILL, STILL)  # swa's end decides what it averages
    expected = train_all(tile(14, rules, **settings))
    shorter = train_all(tile(short, rules, **settings))
    going_on = [
        replace(m, earlier=_stored(earlier))
        for m, earlier in zip(tile(14, rules, **settings), shorter, strict=True)
    ]
    assert_equal(train_all(going_on), expected)


def _stored(outcome):
    parts = KIND.continues.parts
    arrays = {name: outcome.arrays[name] for name in parts if name in outcome.arrays}
    return NodeData("fit", "train", {}, arrays, "d", outcome.status, outcome.reason)


def test_preconditioners_of_later_checkpoints_are_those_of_the_stop():
    (outcome,) = train_all(tile(rules=(ADAM,), keep_preconditioner=True))
    epoch, arrays = int(outcome.arrays["reached_epoch"]), outcome.arrays
    assert 0 < epoch < 14
    after = arrays["preconditioner"][arrays["checkpoint"] >= epoch]
    assert np.isfinite(after).all()
    assert (after == after[-1]).all()


def test_results_are_as_declared():
    for outcome in train_all(tile()):
        assert_declared("train", outcome)


def test_step_norms_are_the_mean_norms_of_the_gradients():
    """Full-batch sgd: one step, as long as the change over the rate."""
    (outcome,) = train_all(
        [member(blobs(), rule=STILL, model=ONE, epochs=4, record_step_norms=True)]
    )
    assert_declared("train", outcome)
    arrays = outcome.arrays
    assert np.isnan(arrays["step_norm"][0])
    expected = arrays["update_norm"][1:] / 0.05
    np.testing.assert_allclose(arrays["step_norm"][1:], expected, rtol=1e-9)


@pytest.mark.parametrize("stop", [2, 7])
def test_step_norms_survive_a_stop(stop):
    members = tile(rules=(STILL, SGD), until=None, record_step_norms=True)
    expected = train_all(members)
    partial = Steps(stop=stop)
    with pytest.raises(Stopped):
        find("train").compute(members, Machine("cpu", partial))
    result = find("train").compute(members, Machine("cpu", Steps(partial.kept)))
    assert_equal(result, expected)


def test_step_norms_are_means_over_batches():
    """Without a rate to speak of, weights stand still: all steps see one loss."""
    (outcome,) = train_all(
        [
            member(
                blobs(24),
                rule={"rule": "sgd", "lr": 1e-9},
                model=ONE,
                epochs=2,
                batch_size=1,
                record_step_norms=True,
            )
        ]
    )
    whole = outcome.arrays["update_norm"][1] / 1e-9 / 24
    assert (
        outcome.arrays["step_norm"][1] > whole
    )  # single gradients cancel in their sum
    assert outcome.arrays["step_norm"][1] == pytest.approx(
        outcome.arrays["step_norm"][2], rel=1e-5
    )


def test_memory_counts_what_is_kept_of_arrivals():
    assert member_bytes(tile()[0]) > member_bytes(tile(until=None)[0])


@pytest.mark.parametrize("wrong", [{"train_loss": 0.0}, {"test_loss": 1.0}, {}])
def test_wrong_stops_are_refused(wrong):
    good = tile()[0].params.model_dump()
    with pytest.raises(ValidationError):
        TrainParams.model_validate({**good, "until": wrong})
