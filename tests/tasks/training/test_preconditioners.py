"""Preconditioners kept with the weights."""

import numpy as np
import pytest

from curvflow.errors import Stopped
from curvflow.schemas.kinds.shared.trained import PRECONDITIONER
from curvflow.schemas.kinds.train import TrainParams
from curvflow.schemas.nodes import Member, NodeData
from curvflow.schemas.rules import all_rules
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.rules import functions_of
from tests.tasks.partials import Steps
from tests.tasks.rules.examples import EXAMPLES
from tests.tasks.toys import assert_declared, blobs, train_all, train_member

RULES = [
    {"rule": "adam", "lr": 0.01},
    {"rule": "sgd", "lr": 0.1, "momentum": 0.9},
    {"rule": "spectral_sgd", "max_momentum": 0.3},
    {"rule": "kfac", "damping": 0.1, "fisher_type": "type-2"},
    {"rule": "kfac", "damping": 0.1, "separate_weight_and_bias": True},
]


def tile(epochs=4, **fields):
    settings = {"keep_preconditioner": True, "checkpoints": {"every": 2}, **fields}
    return [
        train_member(blobs(), rule=rule, epochs=epochs, batch_size=10, **settings)
        for rule in RULES
    ]


def assert_equal(result, expected):
    for first, other in zip(result, expected, strict=True):
        assert first.arrays.keys() == other.arrays.keys()
        for name in (*PRECONDITIONER, "weights", "lr"):
            np.testing.assert_allclose(
                first.arrays[name], other.arrays[name], rtol=1e-9, err_msg=name
            )


@pytest.mark.parametrize("name", all_rules())
def test_rules_that_promise_a_preconditioner_are_those_that_have_one(name):
    for fields in EXAMPLES[name]:
        rule = all_rules()[name].model_validate({"rule": name, **fields})
        functions = functions_of(rule)
        assert rule.has_preconditioner == hasattr(functions, "preconditioner")
        assert rule.chooses_momentum == hasattr(functions, "rates")
        assert bool(rule.records) == hasattr(functions, "recorded")


def test_nothing_is_kept_that_was_not_requested():
    plain, kept = train_all(tile(keep_preconditioner=False)), train_all(tile())
    for bare, full in zip(plain, kept, strict=True):
        assert_declared("train", full)
        assert full.arrays.keys() - bare.arrays.keys() == set(PRECONDITIONER)
        np.testing.assert_array_equal(bare.arrays["weights"], full.arrays["weights"])


def test_it_is_kept_at_every_checkpoint_with_the_rate_in_force():
    stepped = {"kind": "step", "at": [2], "factor": 0.5}
    made = train_member(
        blobs(),
        rule=RULES[0] | {"schedule": stepped},
        epochs=4,
        keep_preconditioner=True,
        checkpoints={"every": 1},
    )
    arrays = train_all([made, made])[0].arrays
    np.testing.assert_allclose(
        arrays["preconditioned_lr"], [0.01, 0.01, 0.01, 0.005, 0.005]
    )
    size = arrays["num_parameters"]
    assert arrays["preconditioner"].shape == (5, size)
    assert np.isnan(arrays["preconditioner"][0]).all()
    assert (arrays["preconditioner"][1:] > 0).all()


def test_longer_training_brings_the_earlier_ones_along():
    short = train_all(tile(epochs=2))
    longer = [
        Member(
            trained.params,
            trained.inputs,
            earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status),
        )
        for trained, done in zip(tile(), short, strict=True)
    ]
    assert_equal(train_all(longer), train_all(tile()))


def test_training_that_was_stopped_goes_on_with_them():
    compute, place = find("train").compute, Steps(stop=8)
    with pytest.raises(Stopped):
        compute(tile(), Machine(partial=place))
    result = compute(tile(), Machine(partial=Steps(place.kept)))
    assert_equal(result, compute(tile(), Machine()))


@pytest.mark.parametrize("name", ["swa", "gadam", "ngd", "lanczos_newton"])
def test_a_rule_without_one_is_refused(name):
    with pytest.raises(ValueError, match=f"known preconditioner.*got {name}"):
        TrainParams.model_validate(
            {
                "model": {"kind": "linear"},
                "rule": {"rule": name, **EXAMPLES[name][0]},
                "epochs": 1,
                "keep_preconditioner": True,
            }
        )
