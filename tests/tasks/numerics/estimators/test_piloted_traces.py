"""Traces by the method that a pilot of a few vectors takes to be the cheapest."""

import numpy as np
import pytest
import torch
from scipy.stats import t

from curvflow.tasks.numerics import BatchedDense, piloted_traces, traces
from curvflow.tasks.numerics.estimators import piloted_traces as module
from curvflow.tasks.numerics.estimators.sketched_traces import METHODS
from tests.tasks.toys import with_spectrum

SIZE = 48
FLAT = np.linspace(1, 3, SIZE)
OUTLIERS = np.r_[np.full(6, 300.0), np.linspace(0.5, 1.5, SIZE - 6)]
STEEP = 0.6 ** np.arange(SIZE)
SLOW = 1 / np.arange(1, SIZE + 1)
SPECTRA = {"flat": FLAT, "outliers": OUTLIERS, "steep": STEEP, "slow": SLOW}
ASKED = {
    "num_probes": 32,
    "distribution": "rademacher",
    "block": 16,
    "rel_sem": 0.02,
    "max_probes": 1 << 9,
}


def piloted(A_MDD, seeds, **given):
    return piloted_traces(BatchedDense(A_MDD), [20, 28], seeds, **ASKED | given)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_it_costs_little_more_than_the_best_method(spectrum):
    A_MDD = torch.stack([with_spectrum(SPECTRA[spectrum], s) for s in range(6)])
    seeds = list(range(6))
    of = {
        method: np.mean(
            [
                draws.num_matvecs if draws.reached else np.inf
                for draws in traces(
                    BatchedDense(A_MDD), [20, 28], seeds, method=method, **ASKED
                )
            ]
        )
        for method in METHODS
    }
    found = piloted(A_MDD, seeds)
    assert all(draws.reached for _, draws in found)
    products = np.mean([draws.num_matvecs for _, draws in found])
    assert products <= 1.3 * min(of.values()) + 16, of


def test_plain_vectors_are_taken_of_flat_spectra_and_a_range_of_outliers():
    A_MDD = torch.stack([with_spectrum(FLAT, 0), with_spectrum(OUTLIERS, 0)])
    (flat, _), (outliers, _) = piloted(A_MDD, [0, 1], rel_sem=0.003)
    assert flat == "hutchinson"
    assert outliers != "hutchinson"


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_intervals_cover_though_the_method_was_chosen(spectrum, law):
    values, covered = SPECTRA[spectrum], []
    A_MDD = torch.stack([with_spectrum(values, s) for s in range(120)])
    for _, draws in piloted(A_MDD, range(120), distribution=law, rel_sem=0.05):
        error = abs(draws.draws.sum(0).mean() - values.sum())
        reach = t.ppf(0.975, draws.freedom) * draws.sem
        covered.append(bool(error <= reach + 1e-9 * values.sum()))
    assert np.mean(covered) >= 0.89  # 0.95 less 3 binomial errors of 120


def test_a_model_is_estimated_as_without_its_siblings():
    A_MDD = torch.stack([with_spectrum(v, 3) for v in SPECTRA.values()])
    together = piloted(A_MDD, [0, 1, 2, 3])
    for number, (method, draws) in enumerate(together):
        pair = A_MDD[number].expand(2, -1, -1)
        alone_method, alone = piloted(pair, [number, number])[0]
        assert (alone_method, alone.num_matvecs) == (method, draws.num_matvecs)
        torch.testing.assert_close(draws.draws, alone.draws, rtol=1e-9, atol=1e-11)


def test_products_of_the_pilot_are_used_and_counted():
    A_DD = with_spectrum(FLAT, 0)
    ((method, draws),) = piloted(A_DD[None], [5], rel_sem=0.002)
    (plain,) = traces(
        BatchedDense(A_DD[None]),
        [20, 28],
        [5],
        method="hutchinson",
        **ASKED | {"rel_sem": 0.002},
    )
    assert method == "hutchinson"
    assert draws.num_matvecs == plain.num_matvecs + 16
    torch.testing.assert_close(draws.draws, plain.draws, rtol=1e-12, atol=1e-12)


def test_a_sketch_that_memory_ends_goes_on_as_plain_vectors(monkeypatch):
    # The pilot is led to believe that a sketch will do.
    monkeypatch.setattr(module, "most_sketched", lambda _: 40)
    monkeypatch.setattr(module, "_slope", lambda before_M, *_: 0 * before_M - 9)
    A_MDD = torch.stack([with_spectrum(FLAT, s) for s in range(4)])
    found = piloted(A_MDD, [0, 1, 2, 3], rel_sem=0.008)
    assert all(draws.reached for _, draws in found)
    assert {method for method, _ in found} == {"hutchinson"}
    assert all(draws.num_matvecs > len(draws.draws.T) for _, draws in found)


def test_vectors_too_long_to_be_kept_are_plain_from_the_first(monkeypatch):
    monkeypatch.setattr(module, "most_sketched", lambda _: 31)
    A_DD = with_spectrum(STEEP, 0)
    ((method, draws),) = piloted(A_DD[None], [5], rel_sem=0.1)
    assert method == "hutchinson"
    assert draws.num_matvecs == draws.draws.shape[1]
    assert module.SKETCH_BYTES // (128 * 10**6) < 32


def test_an_error_out_of_reach_is_told_with_the_least_that_was_reached(monkeypatch):
    monkeypatch.setattr(module, "most_sketched", lambda _: 64)
    A_DD = with_spectrum(SLOW, 0)
    ((_, draws),) = piloted(A_DD[None], [5], rel_sem=1e-6, max_probes=128)
    assert not draws.reached
    assert draws.num_matvecs <= 2 * 128
