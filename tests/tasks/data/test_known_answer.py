"""Samples of truths of which the learning coefficient is known."""

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.schemas.kinds.data.known_answer import KnownAnswerDataParams
from tests.tasks.known import CROSSING, DEEP, PRODUCT, TANH, WELL, data_arrays
from tests.tasks.toys import assert_declared, compute, member


def test_the_population_has_the_second_moments_of_normal_inputs():
    got = data_arrays(DEEP, inputs=5, outputs=4, rank=2)
    moments = got["inputs"].T @ got["inputs"] / len(got["inputs"])
    np.testing.assert_allclose(moments, np.eye(5), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(got["targets"][:, :2], got["inputs"][:, :2])
    assert not got["targets"][:, 2:].any()


@pytest.mark.parametrize("inputs", [1, 3])
def test_the_mean_loss_over_the_population_is_the_squared_distance(inputs):
    got = data_arrays(PRODUCT, inputs=inputs, outputs=2, rank=1)
    W = np.array([[0.3, -1.0, 2.0], [0.5, 0.1, -0.7]])[:, :inputs]
    true = np.eye(2, inputs) * [[1.0], [0.0]]
    losses = ((got["inputs"] @ W.T - got["targets"]) ** 2).sum(1)
    assert losses.mean() == pytest.approx(((W - true) ** 2).sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("model", "points", "outputs"), [(WELL, 2, 2), (CROSSING, 2, 2), (TANH, 16, 1)]
)
def test_other_models_have_one_input_and_targets_zero(model, points, outputs):
    got = data_arrays(model)
    assert got["inputs"].shape == (points, 1)
    assert (got["inputs"] ** 2).mean() == pytest.approx(1)
    np.testing.assert_array_equal(got["targets"], np.zeros((points, outputs)))


@pytest.mark.parametrize("model", [PRODUCT, WELL, CROSSING, TANH])
def test_samples_have_noise_and_the_population_for_a_test_set(model):
    sizes = {"inputs": 3, "outputs": 2, "rank": 1} if model is PRODUCT else {}
    settings = {"model": model, "num_samples": 4000, "noise": 0.5, **sizes}
    (outcome,) = compute("data.known_answer", [member("data.known_answer", settings)])
    assert_declared("data.known_answer", outcome)
    got, whole = outcome.arrays, data_arrays(model, **sizes)
    for name in ("inputs", "targets"):
        np.testing.assert_array_equal(got[f"test_{name}"], whole[name])
    true = np.zeros_like(got["targets"])
    true[:, : len(sizes) // 3] = got["inputs"][:, : len(sizes) // 3]
    noise = got["targets"] - true
    assert noise.std() == pytest.approx(0.5, rel=0.05)
    assert noise.mean() == pytest.approx(0, abs=0.04)
    assert (got["inputs"] ** 2).mean() == pytest.approx(1, rel=0.06)
    again = data_arrays(model, num_samples=4000, noise=0.5, seed=1, **sizes)
    assert (again["targets"] != got["targets"]).any()


def test_the_samples_of_a_seed_are_frozen():
    got = data_arrays(PRODUCT, inputs=2, outputs=1, rank=1, num_samples=2)
    wanted = [-1.0275104, -0.8291862, 0.3863213, -0.927107]
    assert got["inputs"].ravel() == pytest.approx(wanted, rel=1e-6)
    wanted = [0.6668675, 0.2364042]
    assert got["targets"].ravel() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": {"kind": "linear"}}, "expected deep_linear, quadratic_well"),
        ({"model": {**TANH, "bias": True}}, "got another mlp"),
        ({"model": {**TANH, "hidden": [2, 2]}}, "got another mlp"),
        ({"model": WELL, "rank": 1}, "expected rank 0 with quadratic_well"),
        ({"model": TANH, "rank": 1}, "rank 0 or 2 with mlp, none of its units or all"),
        ({"model": WELL, "inputs": 1}, "cannot be combined with"),
        ({"model": PRODUCT, "inputs": 2}, "expected inputs and outputs"),
        (
            {"model": PRODUCT, "inputs": 5, "outputs": 4, "rank": 4},
            "a rank of at most 3",
        ),
    ],
)
def test_what_has_no_known_answer_is_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        KnownAnswerDataParams.model_validate(settings)
