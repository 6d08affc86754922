"""What a localization takes from a coefficient, and distances yet to go."""

import math

import pytest
import torch

from curvflow.tasks.numerics.sampling.chain_results import ChainResults
from curvflow.tasks.numerics.sampling.chain_targets import ChainSettings
from curvflow.tasks.numerics.sampling.coefficient_errors import (
    errors_of,
    hold_of,
    unspread_error,
)
from curvflow.tasks.numerics.sampling.known_coefficients import (
    crossing_coefficient,
    well_coefficient,
)
from curvflow.tasks.numerics.sampling.posteriors import Steps

NBETA = 1000.0


def normal_draws(curvatures, gamma, draws=4000, seed=0):
    """Independent draws about a well: losses and distances, (4, draws)."""
    source = torch.Generator().manual_seed(seed)
    h = torch.tensor(curvatures, dtype=torch.float64)
    noise = torch.randn(4, draws, len(h), generator=source, dtype=torch.float64)
    weights = noise / (NBETA * h + gamma).sqrt()
    return weights.square() @ h / 2, weights.norm(dim=2)


@pytest.mark.parametrize("gamma", [0.1, 10.0, 300.0, 5000.0])
@pytest.mark.parametrize("curvatures", [[1.0], [5.0, 1.0, 0.05]])
def test_of_a_quadratic_the_whole_coefficient_is_found_again(curvatures, gamma):
    losses, distances = normal_draws(curvatures, gamma)
    parts = [NBETA * h / (NBETA * h + gamma) for h in curvatures]
    second = sum((1 - part) ** 2 for part in parts) / 2
    found = hold_of(NBETA * losses, distances, gamma, held=second, sem=0.01)
    unheld = len(curvatures) / 2
    assert found.unheld == pytest.approx(unheld, abs=3 * found.unheld_sem)
    taken = 1 - well_coefficient(curvatures, NBETA, gamma) / unheld
    assert found.share == pytest.approx(taken, abs=0.05)


def test_of_a_higher_power_it_is_the_slope_in_the_localization():
    gamma, power = 20.0, 2
    grid = torch.linspace(-3, 3, 20001, dtype=torch.float64)
    weight = torch.exp(-NBETA * grid ** (2 * power) - gamma / 2 * grid**2)
    chosen = torch.multinomial(
        weight, 80_000, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    w = grid[chosen].view(4, -1)
    losses = w ** (2 * power)
    llc = NBETA * float(losses.mean())
    found = hold_of(NBETA * losses, w.abs(), gamma, held=0.0, sem=0.0)
    step = 1e-3
    less, more = (
        crossing_coefficient([power], NBETA, gamma * math.exp(sign * step))
        for sign in (-1, 1)
    )
    slope = (less - more) / (2 * step)
    assert found.unheld - llc == pytest.approx(slope, rel=0.05)


def test_without_a_spectrum_nothing_is_known_of_what_is_held_altogether():
    losses, distances = normal_draws([1.0], 1.0, draws=50)
    traces = {"loss_trace": losses, "distance_trace": distances}
    fine = torch.full((4,), -1)
    results = ChainResults(traces, fine.double(), fine, fine, fine, 0.0, {}, None)
    settings = ChainSettings("mala", NBETA, 1.0, 1.0, None, 0)
    steps = Steps("mala", torch.ones(4), 50)
    errors, hold = errors_of(settings, results, steps, 0.0, 1)
    assert math.isnan(hold.share)
    assert math.isnan(hold.unheld)
    assert errors.total == max(errors.mcse, errors.along)


def test_without_chains_nothing_is_known_of_the_hold():
    lost = {n: torch.full((2, 9), math.nan) for n in ("loss_trace", "distance_trace")}
    failed = torch.zeros(2, dtype=torch.int64)
    results = ChainResults(lost, failed, failed, failed, failed, 0.0, {}, None)
    settings = ChainSettings("mala", NBETA, 1.0, 1.0, None, 0)
    steps = Steps("mala", torch.ones(2), 9)
    errors, hold = errors_of(settings, results, steps, 0.0, 3)
    assert math.isnan(hold.share)
    assert math.isnan(errors.total)


def far_apart(slope, seed=0):
    """Energies that follow the logarithm of distances of chains that differ."""
    source = torch.Generator().manual_seed(seed)
    first = torch.tensor([-3.0, -2.0, -1.0, 0.0], dtype=torch.float64)[:, None]
    logs = first + 0.3 * torch.randn(4, 500, generator=source, dtype=torch.float64)
    noise = torch.randn(4, 500, generator=source, dtype=torch.float64)
    return 3.0 + slope * logs + noise, logs.exp()


def test_chains_that_have_not_been_equally_far_lack_what_follows_the_distance():
    energies, distances = far_apart(0.2)
    error = unspread_error(energies, distances, localization=1.0, num_free=16)
    way = 0.5 * math.log(16 - 2 * float(energies.mean())) - float(
        distances.log().mean()
    )
    assert error == pytest.approx(0.2 * way / 2, rel=0.15)
    flat, _ = far_apart(0.0)
    assert unspread_error(flat, distances, localization=1.0, num_free=16) < error / 3


def test_a_regular_minimum_lacks_nothing_more():
    energies, distances = far_apart(0.2)
    error = unspread_error(energies, distances, localization=1e-6, num_free=7)
    assert error == pytest.approx((3.5 - float(energies.mean())) / 2)
    assert unspread_error(energies, distances, localization=1e-6, num_free=5) == 0


def test_chains_that_have_been_equally_far_lack_nothing():
    losses, distances = normal_draws([1.0, 2.0], 1.0, draws=500)
    assert unspread_error(NBETA * losses, distances, localization=1.0, num_free=2) == 0
    apart = far_apart(0.2)
    assert unspread_error(*apart, localization=0.0, num_free=16) == 0
    assert unspread_error(*apart, localization=1e9, num_free=16) == 0
