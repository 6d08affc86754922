"""Whether intervals of masses hold the truth as often as they state."""

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import estimate, stream
from curvflow.tasks.numerics.krylov.ritz_spectra import Mass

SIZE, REPETITIONS = 65, 4000


def weights(count, runs, distribution):
    """Weights of random vectors in `count` dimensions of an oblique basis."""
    generator = stream(count + runs, "weights")
    shape = (REPETITIONS, runs, SIZE)
    start = torch.randn(shape, generator=generator, dtype=torch.float64)
    if distribution == "signs":
        start = start.sign()
    random = torch.randn(SIZE, count, generator=generator, dtype=torch.float64)
    basis_DK = torch.linalg.qr(random).Q
    inside = (start @ basis_DK).square().sum(2)
    return inside / start.square().sum(2)


def known(draws):
    return Mass(estimate(draws), draws, draws)


@pytest.mark.parametrize("distribution", ["signs", "gaussian"])
@pytest.mark.parametrize(
    ("count", "runs"), [(4, 10), (4, 20), (8, 5), (14, 20), (32, 3), (51, 20)]
)
def test_intervals_of_exact_weights_cover_as_stated(count, runs, distribution):
    low, high = known(weights(count, runs, distribution)).interval()
    inside = (low <= count / SIZE) & (count / SIZE <= high)
    assert 0.93 < inside.double().mean().item() < 0.965


def test_a_small_mass_is_missed_on_both_sides_more_evenly_than_by_student():
    draws = weights(2, 10, "gaussian")
    low, high = known(draws).interval()
    below = (high < 2 / SIZE).double().mean().item()
    result = estimate(draws)
    student = (result.mean + 2.2622 * result.sem < 2 / SIZE).double().mean().item()
    assert below < 0.65 * student
    assert (low > 0).all()


def test_the_complement_has_the_complementary_interval():
    draws = weights(8, 5, "signs")
    low, high = known(draws).interval()
    other_low, other_high = known(1 - draws).interval()
    torch.testing.assert_close(other_low, 1 - high, rtol=0, atol=1e-12)
    torch.testing.assert_close(other_high, 1 - low, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mass", [0.0, 1.0, 0.25])
def test_runs_that_agree_leave_a_point(mass):
    ends = known(torch.full((1, 4), mass).double()).interval()
    assert [end.item() for end in ends] == [mass, mass]


def test_a_loose_rule_widens_the_interval_by_its_bounds():
    draws = weights(32, 20, "signs")[:50]
    lower, upper = (draws - 0.1).clamp(0, 1), (draws + 0.1).clamp(0, 1)
    low, high = Mass(estimate(draws), lower, upper).interval()
    tight_low, tight_high = known(draws).interval()
    np.testing.assert_allclose(tight_low - low, 0.1, atol=0.01)
    np.testing.assert_allclose(high - tight_high, 0.1, atol=0.01)
