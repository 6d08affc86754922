"""Targets from a network drawn at random."""

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.teacher import TeacherParams
from tests.tasks.toys import assert_declared, compute, member


def arrays(**params):
    (outcome,) = compute("data.teacher", [member("data.teacher", params)])
    assert_declared("data.teacher", outcome)
    return outcome.arrays


def least_squares(got):
    ones = np.ones((len(got["inputs"]), 1))
    design = np.hstack([got["inputs"], ones])
    return np.linalg.lstsq(design, got["targets"], rcond=None)[0]


def test_least_squares_recovers_a_teacher_of_one_layer():
    fields = {"hidden": [], "outputs": 3, "bias_scale": 0.5, "num_test": 50}
    first, second = arrays(**fields), arrays(**fields, seed=1)
    actual = least_squares(first)
    # The weights of one teacher, found in two data sets of its own.
    np.testing.assert_allclose(least_squares(second), actual, atol=1e-6)
    predicted = first["test_inputs"] @ actual[:-1] + actual[-1]
    np.testing.assert_allclose(predicted, first["test_targets"], atol=1e-5)
    assert np.abs(least_squares(arrays(**fields, teacher_seed=1)) - actual).max() > 0.1


def test_the_samples_of_a_seed_are_frozen():
    got = arrays(dim=2, num_train=3, num_test=1, noise=0.1)
    assert got["inputs"][0] == pytest.approx([0.6923178, 1.1267904], rel=1e-6)
    wanted = [0.2871933, 0.2592397, 0.1718141]
    assert got["targets"][:, 0] == pytest.approx(wanted, rel=1e-6)


def test_weights_have_the_deviation_stated():
    wide = {"hidden": [], "dim": 200, "outputs": 100, "num_train": 400}
    actual = least_squares(arrays(**wide, weight_scale=3.0, bias_scale=2.0))
    assert actual[:-1].std() == pytest.approx(3 / 200**0.5, rel=0.03)
    assert actual[-1].std() == pytest.approx(2, rel=0.3)
    assert np.abs(least_squares(arrays(**wide))[-1]).max() < 1e-4


def test_noise_is_added_to_the_outputs_of_the_same_teacher():
    plain, noisy = arrays(), arrays(noise=0.3)
    np.testing.assert_array_equal(noisy["inputs"], plain["inputs"])
    added = noisy["targets"] - plain["targets"]
    assert added.std() == pytest.approx(0.3, rel=0.1)
    assert added.mean() == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("tanh", np.tanh),
        ("relu", lambda x: np.maximum(x, 0)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_a_hidden_unit_bends_as_its_activation_does(activation, function):
    deep = {"dim": 1, "hidden": [1], "weight_scale": 2.0, "num_train": 50}
    got = arrays(**deep, activation=activation)
    line = arrays(**deep, activation="identity")
    # f = v s(w x); the identity tells v w, and the ratio at one point tells w.
    x, y = got["inputs"][:, 0], got["targets"][:, 0]
    product = (line["targets"][:, 0] / line["inputs"][:, 0]).mean()
    errors = [
        np.abs(product / w * function(w * x) - y).max()
        for w in np.linspace(-8, 8, 20001)
        if w != 0
    ]
    assert min(errors) < 2e-3


def test_gelu_is_taken_too():
    assert np.isfinite(arrays(activation="gelu")["targets"]).all()


@pytest.mark.parametrize("law", ["normal", "uniform", "sphere", "signs"])
def test_inputs_of_every_law_have_variance_one(law):
    x = arrays(inputs=law, num_train=20000, num_test=0, dim=4)["inputs"]
    assert x.mean(0) == pytest.approx(np.zeros(4), abs=0.05)
    np.testing.assert_allclose(np.cov(x.T), np.eye(4), atol=0.05)
    if law == "uniform":
        assert np.abs(x).max() == pytest.approx(3**0.5, abs=1e-3)
    if law == "sphere":
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), 2, rtol=1e-6)
    if law == "signs":
        assert set(np.unique(x)) == {-1.0, 1.0}


def test_classes_are_the_largest_outputs():
    values = arrays(outputs=4, num_test=30)
    got = arrays(outputs=4, num_test=30, labels="class")
    for name in ("targets", "test_targets"):
        assert got[name].tolist() == values[name].argmax(1).tolist()
    assert got["num_classes"] == 4


def test_a_class_without_samples_is_reported():
    with pytest.raises(InputError) as caught:
        arrays(outputs=40, num_train=20, labels="class")
    assert str(caught.value).startswith(
        "labels: expected samples of each of 40 classes in training, got none of class "
    )
    assert str(caught.value).endswith("Raise num_train, or take another teacher_seed.")


def test_one_output_makes_no_classes():
    with pytest.raises(ValidationError, match="expected outputs of at least 2 for"):
        TeacherParams(labels="class")


def test_nothing_has_more_digits_than_single_precision():
    for array in arrays(noise=0.1).values():
        assert np.array_equal(array, array.astype(np.float32))
