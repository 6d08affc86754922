"""Variance of the curvature of networks between samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.probes.variances.hessian_variance import member_bytes
from tests.tasks.probes.checks import probes
from tests.tasks.toys import assert_declared, compute, dense_of

KIND = "probe.hessian_variance"
MODULE = "curvflow.tasks.probes.variances.hessian_variance"
ENDS = ("", "_sem", "_low", "_high")


def sample_hessians(probed):
    """Return the Hessian of every sample, (N, D, D)."""
    data = probed.one("data")
    result = []
    for row in range(len(data["inputs"])):
        arrays = {
            **data.arrays,
            "inputs": data["inputs"][row : row + 1],
            "targets": data["targets"][row : row + 1],
        }
        inputs = {**probed.inputs, "data": [replace(data, arrays=arrays)]}
        result.append(dense_of(replace(probed, inputs=inputs)))
    return torch.stack(result)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("case", ["tanh-ce", "tanh-mse"])
def test_variances_are_within_five_standard_errors_of_all_samples(case, batch_size):
    members = probes(KIND, case, 2, batch_size=batch_size, num_probes=60)
    for member, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        H_NDD, arrays = sample_hessians(member), outcome.arrays
        exact = H_NDD.var(dim=0).sum().item()
        error = abs(arrays["hessian_variance"] - exact)
        assert error < 5 * arrays["hessian_variance_sem"]
        squared = H_NDD.mean(0).square().sum().item()
        error = abs(arrays["squared_mean"] - squared)
        assert error < 5 * arrays["squared_mean_sem"]
        assert arrays["num_matvecs"] == 60 * (len(H_NDD) // batch_size)


def test_intervals_of_few_vectors_hold_the_variance_of_all_samples():
    given = {"batch_size": 2, "num_batches": 2, "num_probes": 8}
    (probed,) = probes(KIND, "tanh-ce", 1, **given)
    exact = sample_hessians(probed).var(dim=0).sum().item()
    seeded = [
        replace(probed, params=probed.params.model_copy(update={"seed": seed}))
        for seed in range(200)
    ]
    squared = sample_hessians(probed).mean(0).square().sum().item()
    skewed, student, means = [], [], []
    for outcome in compute(KIND, seeded):
        of = {name: float(outcome.arrays[f"{KIND[6:]}{name}"]) for name in ENDS}
        skewed.append(of["_low"] <= exact <= of["_high"])
        student.append(abs(of[""] - exact) <= 2.365 * of["_sem"])
        low, high = (outcome.arrays[f"squared_mean_{end}"] for end in ("low", "high"))
        means.append(low <= squared <= high)
    assert np.mean(student) < np.mean(skewed) < 1
    assert np.mean(skewed) > 0.88
    assert np.mean(means) > 0.92


def share_held(probed, exact, *, seeds, **given):
    """Return the share of intervals that hold the variance of all samples."""
    params = probed.params.model_copy(update=given)
    seeded = [
        replace(probed, params=params.model_copy(update={"seed": seed}))
        for seed in range(seeds)
    ]
    ends = [
        [outcome.arrays[f"hessian_variance_{end}"] for end in ("low", "high")]
        for outcome in compute(KIND, seeded)
    ]
    low, high = np.array(ends).T
    assert (low >= 0).all()
    return np.mean((low <= exact) & (exact <= high))


def test_intervals_of_random_batches_and_vectors_hold_the_variance():
    shares, seeds = [], 100
    for net in ("tanh-ce", "tanh-mse"):
        (probed,) = probes(KIND, net, 1)
        exact = sample_hessians(probed).var(dim=0).sum().item()
        for case in range(10):
            rng = np.random.default_rng(case)
            batch = int(rng.integers(1, 11))
            given = {
                "batch_size": batch,
                "num_batches": int(rng.integers(2, min(8, 20 // batch) + 1)),
                "num_probes": int(rng.integers(8, 30)),
                "distribution": str(rng.choice(["rademacher", "gaussian"])),
            }
            shares.append(share_held(probed, exact, seeds=seeds, **given))
    error = (0.95 * 0.05 / seeds) ** 0.5
    assert 0.95 - 3 * error / len(shares) ** 0.5 < np.mean(shares) < 0.98
    assert min(shares) > 0.95 - 4 * error


def test_vectors_multiplied_together_are_those_one_by_one(monkeypatch):
    members = probes(KIND, "tanh-ce", 2, batch_size=3, num_batches=3, num_probes=7)
    together = compute(KIND, members)[1].arrays
    for most in (1, 2, 4):
        monkeypatch.setattr(f"{MODULE}.batches_per_pass", lambda _, most=most: most)
        apart = compute(KIND, members)[1].arrays
        for name in ("hessian_variance_draws", "squared_mean"):
            np.testing.assert_allclose(apart[name], together[name], rtol=1e-9)


def test_the_law_of_batches_and_the_share_per_parameter_follow():
    members = probes(KIND, "tanh-ce", 2, batch_size=3, num_probes=4)
    arrays = compute(KIND, members)[0].arrays
    total = arrays["hessian_variance"]
    assert arrays["batch_hessian_variance"] == pytest.approx(total * (1 / 3 - 1 / 30))
    assert arrays["hessian_variance_per_parameter"] == pytest.approx(total / 45)
    draws = arrays["hessian_variance_draws"]
    assert total == pytest.approx(draws.mean(), rel=1e-12)
    assert arrays["num_draws"] == 4


def test_gauss_newton_matrices_vary_otherwise_than_hessians():
    hessian, ggn = (
        compute(KIND, probes(KIND, "tanh-ce", 2, operator=name, num_probes=4))[0].arrays
        for name in ("hessian", "ggn")
    )
    assert 0 < ggn["hessian_variance"] != hessian["hessian_variance"]
    linear_in_weights = compute(
        KIND, probes(KIND, "tanh-mse", 2, operator="ggn", num_probes=4)
    )[0].arrays
    assert linear_in_weights["squared_mean"] > 0


def test_results_do_not_depend_on_the_width_of_the_tile():
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(probes(KIND, "relu-ce", 5, num_probes=3))
    ]
    reference = compute(KIND, members)
    for result, expected in zip(compute(KIND, members[:2]), reference, strict=False):
        np.testing.assert_allclose(
            result.arrays["hessian_variance_draws"],
            expected.arrays["hessian_variance_draws"],
            rtol=1e-9,
        )


@pytest.mark.parametrize("given", [{"batch_size": 16}, {"num_batches": 31}])
def test_batches_that_the_data_do_not_make_are_refused(given):
    with pytest.raises(InputError, match="num_batches: expected 2 to"):
        compute(KIND, probes(KIND, "tanh-ce", 2, **given))


def test_memory_is_estimated_above_the_weights_of_a_pass():
    (probed,) = probes(KIND, "tanh-ce", 1)
    assert 30 * 45 * 8 < member_bytes(probed) < 10**7
