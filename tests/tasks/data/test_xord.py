"""Exclusive or, distributed over pairs."""

from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.schemas.kinds.data.xord import XordParams
from tests.tasks.toys import assert_declared, compute, member


def arrays(**params):
    (outcome,) = compute("data.xord", [member("data.xord", params)])
    assert_declared("data.xord", outcome)
    return outcome.arrays


def differing(inputs):
    return (inputs[..., 0] != inputs[..., 1]).sum(1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_is_the_set_of_the_source(seed):
    got = arrays(seed=seed)
    for prefix, count in (("", 12), ("test_", 10)):
        inputs, targets = got[prefix + "inputs"], got[prefix + "targets"]
        assert inputs.shape == (count, 5, 2)
        assert set(np.unique(inputs)) == {-1.0, 1.0}
        assert targets.sum() == 0
        assert differing(inputs).tolist() == (targets[:, 0] == 1).tolist()
    strings = np.concatenate([got["inputs"], got["test_inputs"]]).reshape(22, -1)
    assert len(np.unique(strings, axis=0)) == 22
    assert got["num_classes"] == 2


def test_the_strings_of_a_seed_are_frozen():
    got = arrays()
    assert got["inputs"][0].tolist() == [[-1, -1], [-1, -1], [1, 1], [-1, -1], [1, 1]]
    signs = "".join("+" if y > 0 else "-" for y in got["targets"][:, 0])
    assert signs == "---++-+-++-+"


@pytest.mark.parametrize("positives", ["one", "any"])
def test_all_strings_of_a_pool_can_be_drawn(positives):
    got = arrays(pairs=3, num_train=10, num_test=6, positives=positives)
    drawn = np.concatenate([got["inputs"], got["test_inputs"]]).reshape(16, 6)
    negatives = {
        tuple(string)
        for string in product([-1, 1], repeat=6)
        if all(string[k] == string[k + 1] for k in (0, 2, 4))
    }
    assert negatives <= {tuple(string) for string in drawn}


def test_positive_strings_may_have_several_pairs_that_differ():
    got = arrays(pairs=5, num_train=40, num_test=0, positives="any")
    positive = got["targets"][:, 0] == 1
    assert (differing(got["inputs"]) > 0).tolist() == positive.tolist()
    assert differing(got["inputs"]).max() > 1
    assert len(got["test_inputs"]) == 0


def test_labels_are_the_same_classes():
    sign, index = arrays(), arrays(labels="index")
    assert index["targets"].tolist() == ((sign["targets"][:, 0] + 1) / 2).tolist()
    assert index["num_classes"] == 2


def test_classes_are_mixed_and_seeds_differ():
    first, second = arrays(seed=0), arrays(seed=1)
    assert not np.array_equal(first["inputs"], second["inputs"])
    assert any(len(set(s["targets"][:6, 0])) == 2 for s in (first, second))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"num_train": 11},
            "expected an even num_train, half of it positive, got 11. Take 10 or 12.",
        ),
        ({"num_test": 3}, "expected an even num_test"),
        (
            {"num_train": 60, "num_test": 6},
            "expected num_train + num_test of at most 64, for only 2^pairs = 32 "
            "strings are negative, got 60 + 6. Lower them, or take pairs of 6.",
        ),
        (
            {"pairs": 1, "num_train": 4, "num_test": 2},
            "at most 4, for only 2^pairs = 2 strings are negative, got 4 + 2",
        ),
        ({"pairs": 10, "num_train": 4000}, r"got 4000 + 10. Lower them."),
        ({"pairs": 11}, "less than or equal to 10"),
    ],
)
def test_more_than_there_are_is_refused(params, message):
    with pytest.raises(ValidationError) as caught:
        XordParams(**params)
    assert message in str(caught.value)
