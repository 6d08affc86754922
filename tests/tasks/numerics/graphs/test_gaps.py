"""Counts of eigenvalues below a gap, and what their draws allow."""

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import BatchedDense, lanczos
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.graphs.gaps import count_below, count_interval
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import is_all_eigenvalues
from tests.tasks.toys import with_spectrum


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("number", [1, 2, 6])
def test_the_law_of_draws_holds_counts(number, law):
    values = np.r_[np.linspace(0, 0.05, number), np.linspace(0.6, 1.4, 60 - number)]
    A_MDD = with_spectrum(values, 0).expand(200, -1, -1)
    vectors = random_vectors(range(200), 60, range(12), law)
    count = count_below(lanczos(BatchedDense(A_MDD), vectors, num_steps=14), 0.3)
    low, high = count_interval(count, 60)
    held = (low <= number) & (number <= high)
    assert 0.9 < held.double().mean() < 1
    assert (low >= 0).all()
    # So many are known beside, which have no error.
    more_low, more_high = count_interval(count.plus(3.0), 60, known=3.0)
    torch.testing.assert_close(more_low, low + 3)
    torch.testing.assert_close(more_high, high + 3)


def test_a_count_without_an_error_is_its_own_interval():
    """Of few vectors, all of which might miss an eigenvector, it is none."""
    A_MDD = torch.diag(torch.linspace(0.5, 2, 9).double())[None]
    for num_runs, is_known in ((4, False), (16, True)):
        vectors = random_vectors([0], 9, range(num_runs), "gaussian")
        ritz = lanczos(BatchedDense(A_MDD), vectors, num_steps=9)
        low, high = count_interval(count_below(ritz, 0.3), 9)
        assert low.item() == pytest.approx(0, abs=1e-12)
        assert (high.item() < 1e-12) == is_known


def test_equal_draws_are_not_exact_unless_they_are_of_all_eigenvalues():
    """Of few steps no node may be as low as the lowest eigenvalue."""
    values = np.r_[-0.03, np.linspace(0.6, 1.4, 59)]
    A_MDD = with_spectrum(values, 0).expand(400, -1, -1)
    vectors = random_vectors(range(400), 60, range(4), "gaussian")
    count = count_below(lanczos(BatchedDense(A_MDD), vectors, num_steps=2), 0.0)
    assert (count.estimate.sem == 0).all()
    low, high = count_interval(count, 60)
    assert (high >= 1).double().mean() > 0.95
    assert (low == 0).all()
    # As if known, only the bounds are between.
    low, high = count_interval(count, 60, is_exact=True)
    torch.testing.assert_close(high, count.upper.mean(-1))
    torch.testing.assert_close(low, count.lower.mean(-1))
    assert (high >= 1).double().mean() < 0.6


def test_all_eigenvalues_give_the_number_itself():
    values = torch.linspace(0, 2, 9).double()
    weights = torch.full_like(values, 1 / 9)
    ritz = RitzData(
        values[None, None],
        weights[None, None],
        torch.zeros(1, 1, 9).double(),
        torch.tensor([[9]]),
        9,
    )
    low, high = count_interval(
        count_below(ritz, 0.6), 9, is_exact=is_all_eigenvalues(ritz)
    )
    assert (low.item(), high.item()) == pytest.approx((3, 3))
