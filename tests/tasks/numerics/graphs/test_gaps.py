"""Counts of eigenvalues below a gap, and what their draws allow."""

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import BatchedDense, lanczos
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.graphs.gaps import count_below, count_interval
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
    ritz = lanczos(
        BatchedDense(torch.diag(torch.linspace(0.5, 2, 9).double())[None]),
        random_vectors([0], 9, range(4), "gaussian"),
        num_steps=9,
    )
    low, high = count_interval(count_below(ritz, 0.3), 9)
    assert (low.item(), high.item()) == pytest.approx((0, 0), abs=1e-12)
