"""Means and covariances over draws of chains, against closed forms of Gaussians."""

import doctest

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics.sampling import covariances as module
from curvflow.tasks.numerics.sampling.covariances import covariances, means

FIELDS = ("value", "sem", "r_hat", "ess")


def chains(seed, correlation=0.0, size=3, num_chains=4, draws=400):
    """Stationary chains of independent coordinates with a lag-one correlation."""
    source = torch.Generator().manual_seed(seed)
    noise = torch.randn(size, num_chains, draws, generator=source).double()
    values = noise.clone()
    for k in range(1, draws):
        fresh = (1 - correlation**2) ** 0.5 * noise[..., k]
        values[..., k] = correlation * values[..., k - 1] + fresh
    return values


def mixed(values_ICK, seed=0):
    """Linear combinations of coordinates, and their covariance matrix."""
    A = np.random.default_rng(seed).normal(size=(4, len(values_ICK)))
    return torch.einsum("ij,jck->ick", torch.as_tensor(A), values_ICK), A @ A.T


def test_a_covariance_is_that_of_all_draws_together():
    values, _ = mixed(chains(0))
    expected = np.cov(values.flatten(1).numpy())
    assert covariances(values).value.numpy() == pytest.approx(expected, rel=1e-10)
    block = covariances(values[:1], values[1:]).value
    assert block.numpy() == pytest.approx(expected[:1, 1:], rel=1e-10)


def test_without_others_the_matrix_is_that_with_itself(monkeypatch):
    values, _ = mixed(chains(1))
    triangle, square = covariances(values), covariances(values, values)
    monkeypatch.setattr(module, "PASS_NUMBERS", 2 * values[0].numel())
    in_passes = covariances(values)
    for name in FIELDS:
        expected = getattr(square, name)
        assert torch.equal(getattr(triangle, name), expected)
        assert torch.equal(getattr(in_passes, name), expected)
        assert torch.equal(expected, expected.T)


def test_the_error_of_independent_draws_is_that_of_a_gaussian():
    values, truth = mixed(chains(2, draws=4000))
    matrix = covariances(values)
    expected = np.sqrt((truth**2 + np.outer(*2 * [np.diag(truth)])) / values[0].numel())
    assert matrix.sem.numpy() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_covariances_are_within_their_errors(seed, correlation):
    values, truth = mixed(chains(seed, correlation, draws=1000), seed)
    matrix = covariances(values)
    assert ((matrix.value - torch.as_tensor(truth)).abs() < 4 * matrix.sem).all()
    assert matrix.is_converged.all()


def test_the_error_counts_the_autocorrelation_of_what_is_averaged():
    correlation, draws = 0.7, 2000
    matrix = covariances(chains(3, correlation, draws=draws))
    # Products of two coordinates of correlation r have that of r^2.
    time = (1 + correlation**2) / (1 - correlation**2)
    expected = np.sqrt(2 * time / (4 * draws))
    assert matrix.sem.diagonal().numpy() == pytest.approx(expected, rel=0.15)
    assert matrix.ess.numpy() == pytest.approx(4 * draws / time, rel=0.25)


def test_means_of_observables_have_the_errors_of_a_mean():
    values = 3.0 + chains(4, 0.5, draws=2000)
    averages = means(values).times(-2.0)
    expected = 2 * np.sqrt(3 / 8000)
    assert averages.value.numpy() == pytest.approx(-6.0, abs=5 * expected)
    assert averages.sem.numpy() == pytest.approx(expected, rel=0.15)


def test_a_constant_has_no_covariance_and_no_error():
    values = torch.cat([chains(5, size=1), torch.full((1, 4, 400), 2.0)])
    matrix = covariances(values.double())
    assert matrix.value[1].tolist() == matrix.sem[1].tolist() == [0.0, 0.0]
    assert matrix.is_converged.all()


def test_chains_that_disagree_in_spread_have_not_converged():
    values = chains(6, size=1)
    values[:, 0] *= 3
    assert not covariances(values).is_converged.any()


def test_few_effective_draws_have_not_converged():
    slow = covariances(chains(7, 0.98, size=2))
    assert (slow.ess < module.MIN_ESS).all()
    assert not slow.is_converged.any()


def test_examples_run():
    found = doctest.testmod(module)
    assert found.attempted > 1
    assert not found.failed
