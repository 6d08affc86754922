"""Settings that closed forms of a quadratic give."""

from dataclasses import dataclass, replace

import pytest
import torch

from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.sampling.calibration import (
    HEATING,
    HELD,
    HELD_SINGULAR,
    LEAST_BURNIN,
    MARGIN,
    STRIDE,
    batch_for,
    burnin_for,
    held_share,
    localization_for,
    lr_for,
    predicted,
)
from curvflow.tasks.numerics.sampling.calibration_sweep import (
    SWEEPS,
    Sweep,
    ended,
    most_lr,
    plateau,
)
from curvflow.tasks.numerics.sampling.measured_curvature import (
    MeasuredCurvature,
    Scales,
    curvature_at_reach,
    scales,
)

H = torch.tensor([4.0, 2.0, 1.0, 0.5, 0.0], dtype=torch.float64)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def scale(largest, smallest, typical):
    parts = (numbers(value) for value in (largest, smallest, typical))
    return Scales(*parts, torch.tensor([False]))


def exactly(values):
    """All eigenvalues, as a single run."""
    size = len(values)
    weights = torch.full((1, 1, size), 1 / size, dtype=torch.float64)
    ascending = values.sort().values[None, None]
    steps = torch.tensor([[size]])
    return RitzData(ascending, weights, torch.zeros_like(weights), steps, size)


@dataclass(frozen=True)
class Powers:
    """The loss sum h |w|^p / p, over no data."""

    h: torch.Tensor
    p: int = 2
    num_samples: int = 1

    def values(self, weights_CD, rows_CB):
        return (self.h * weights_CD.abs() ** self.p).sum(1) / self.p


def met(losses, nbeta, chains=400):
    generator = torch.Generator().manual_seed(0)
    shape = (chains, len(losses.h))
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    directions = drawn / drawn.norm(dim=1, keepdim=True)
    nbeta_C = torch.full((chains,), nbeta, dtype=torch.float64)
    return float(curvature_at_reach(losses, 0 * drawn, directions, nbeta_C, chains))


def test_the_prediction_is_the_closed_form_of_a_quadratic():
    nbeta, gamma = 50.0, 3.0
    c = nbeta * H + gamma
    plain = predicted(exactly(H), numbers(nbeta), numbers(gamma)).estimate.mean
    assert plain == pytest.approx(float((nbeta * H / c).sum() / 2), rel=1e-12)


def test_negative_eigenvalues_count_as_zero_and_a_flat_posterior_has_none():
    h = torch.cat([H, numbers(-3.0)])
    computed = predicted(exactly(h), numbers(10.0), numbers(1.0)).estimate.mean
    assert computed == pytest.approx(float((10 * H / (10 * H + 1)).sum() / 2))
    assert predicted(exactly(0 * H), numbers(10.0), numbers(0.0)).estimate.mean == 0


def test_the_curvature_at_reach_is_the_mean_eigenvalue_of_a_quadratic():
    assert met(Powers(H), 1e3) == pytest.approx(float(H.mean()), rel=0.1)


def test_a_quartic_meets_more_curvature_at_higher_temperature():
    cold, hot = (met(Powers(H, 4), nbeta) for nbeta in (1e6, 1e4))
    # Its reach is nbeta^-1/4, its curvature the square of that.
    assert hot / cold == pytest.approx(10, rel=0.1)


def test_scales_leave_out_what_is_flat():
    computed = scales(exactly(torch.cat([H, numbers(-0.1, 1e-9)])), numbers(1.0))
    assert (computed.largest, computed.smallest, computed.typical) == (4.0, -0.1, 1.0)
    nothing = scales(exactly(0 * H), numbers(0.3))
    assert (nothing.largest, nothing.smallest, nothing.typical) == (0.3, 0.0, 0.3)


@pytest.mark.parametrize(
    ("computed", "expected"),
    [
        (scale(2.0, 0.0, 1.0), HELD_SINGULAR * 1e3),
        (scale(2e-6, 0.0, 1e-6), HELD * 1.0),
        (scale(2.0, -0.5, 1.0), MARGIN * 0.5e6),
    ],
)
def test_the_hold_is_weak_but_where_curvature_is_negative(computed, expected):
    flat = exactly(torch.zeros(3, dtype=torch.float64))
    hold = localization_for(
        MeasuredCurvature(flat, numbers(1.0), computed, numbers(1e6)),
        steps_bw_draws=10**6,
        stride=1.0,
        is_whitened=False,
        max_hold=0.1,
    )
    assert hold == pytest.approx(expected)


def test_a_batch_heats_no_more_than_it_may():
    nbeta, gamma = numbers(500.0), numbers(5.0)
    h = H[:4]
    computed = scale(float(h.max()), 0.0, float(h.median()))
    lr = lr_for(computed, nbeta, gamma, stride=STRIDE)
    # Of a well-specified model the variance of gradients is the Hessian.
    regular = predicted(exactly(h), nbeta, gamma).estimate.mean
    batch = batch_for(lr, nbeta, h.sum()[None], regular)
    heat = lr * nbeta**2 * h / (4 * batch)
    share = nbeta * h / (nbeta * h + gamma)
    assert float((share * heat).sum() / share.sum()) <= HEATING * (1 + 1e-9)


def test_the_burn_in_waits_for_typical_and_for_singular_directions():
    steep = scale(100.0, 0.0, 0.1)
    singular = scale(1.0, 0.0, 1.0)
    calm = scale(1e-3, 0.0, 1e-3)
    for computed, nbeta, steps in (
        (steep, 1.0, 10_000),
        (singular, 1e6, 10_000),
        (calm, 1.0, LEAST_BURNIN),
    ):
        told = burnin_for(computed, numbers(nbeta), stride=1.0, most=10**6)
        assert int(told) == steps


@pytest.mark.parametrize(
    ("estimates", "chosen", "on"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0], 2, [1, 1, 1, 1, 1]),
        ([2.0, 1.0, 1.04, 1.0, 3.0], 2, [0, 1, 1, 1, 0]),
        # Agreement beyond a disagreement is no plateau.
        ([1.0, 2.0, 1.0, 1.0, 1.0], 2, [0, 0, 1, 1, 1]),
        ([1.0, 1.0, torch.nan, 1.0, 1.0], 2, [0, 0, 0, 0, 0]),
        # Nor is one alone.
        ([3.0, 2.0, 1.0, 2.0, 3.0], 2, [0, 0, 0, 0, 0]),
        ([1.0, 2.0, 2.0, 2.0, 2.0], 0, [0, 0, 0, 0, 0]),
    ],
)
def test_a_plateau_reaches_as_far_as_trials_agree(estimates, chosen, on):
    computed = plateau(numbers(*estimates), numbers(*5 * [0.01]), chosen)
    assert computed.tolist() == [bool(one) for one in on]


@pytest.mark.parametrize(
    ("estimates", "errors", "on"),
    [
        # A walk that has run away agrees with anything within its own error.
        ([5.0, 5.1, 5.0, 1e132, 4.9], [0.1, 0.1, 0.1, 1e132, 0.1], [1, 1, 1, 0, 0]),
        (
            [5.0, 5.1, 1e132, 1e131, 1e140],
            [0.1, 0.1, 1e132, 1e131, 1e140],
            [0, 0, 1, 1, 0],
        ),
        # Noisy as short trials are, but not without any meaning.
        ([5.0, 7.0, 5.0, 4.0, 6.0], [1.0, 2.0, 0.2, 0.5, 3.0], [1, 1, 1, 1, 1]),
        ([0.0, 0.1, 0.0, 0.1, 0.0], [0.1, 0.2, 0.1, 0.2, 0.1], [1, 1, 1, 1, 1]),
    ],
)
def test_a_trial_too_noisy_to_judge_is_on_no_plateau(estimates, errors, on):
    computed = plateau(numbers(*estimates), numbers(*errors), 2)
    assert computed.tolist() == [bool(one) for one in on]


FACTORS = torch.tensor(SWEEPS["lr"], dtype=torch.float64)


def trials_of(estimates_T, biases_T, lr, error=0.005):
    none_T = torch.zeros_like(estimates_T)
    steps_TC = (lr * FACTORS)[:, None].repeat(1, 2)
    errors_T = error * estimates_T.abs()
    return Sweep(
        estimates_T, errors_T, none_T, none_T, biases_T, none_T + 0.9, steps_TC, 1.0
    )


def known_trials(seed):
    """Trials whose steps and batches add a known share, and measure up to twice it."""
    draw = torch.Generator().manual_seed(seed)
    truth, excess, over, lr, *noise = torch.rand(10, generator=draw).double()
    truth, lr = 100**truth, 1e-6 ** (0.5 + lr)
    # The share that the longest trial adds, as it is and as it is measured.
    excess_T = FACTORS * 0.35 * 0.9 ** (30 * excess)
    measured_T = (1 + over) * excess_T * (1 + 0.4 * (torch.stack(noise[:3]) - 0.5))
    estimates_T = truth * (1 + excess_T) * (1 + 0.01 * (torch.stack(noise[3:6]) - 0.5))
    sweep = trials_of(estimates_T, measured_T / (1 + excess_T), float(lr))
    return sweep, float(excess_T[-1] / lr), float(lr)


@pytest.mark.parametrize("runs_away", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_step_is_as_long_as_what_it_adds_allows_and_no_shorter(seed, runs_away):
    sweep, rate, lr = known_trials(seed)
    if runs_away:  # the longest trial, by any factor; and what it measures is anything
        draw = torch.Generator().manual_seed(seed)
        far, much = (float(e) for e in 1000 ** torch.rand(2, generator=draw))
        sweep.estimates[-1] *= 2 * far
        sweep.errors[-1] *= 50 * far
        sweep.biases[-1] = 0.6 * much
    chosen, on_T = ended(sweep, "lr")
    assert on_T[chosen]
    assert on_T[chosen - 1]
    assert chosen == 1 if runs_away else chosen >= 1
    taken = min(lr * SWEEPS["lr"][chosen], most_lr(sweep))
    assert rate * taken <= 0.05
    assert taken >= min(lr / 2, 0.01 / rate)


@pytest.mark.parametrize("seed", range(20))
def test_an_estimate_that_steps_change_beyond_what_they_measure_ends_no_sweep(seed):
    sweep, _, _ = known_trials(seed)
    sweep.estimates[-1] *= 5
    chosen, on_T = ended(sweep, "lr")
    assert chosen == 1
    assert on_T.tolist() == [True, True, False]
    sweep.estimates[-2] *= 2
    chosen, on_T = ended(sweep, "lr")
    assert chosen == 0
    assert not on_T.any()


@pytest.mark.parametrize("excess", [0.7, 3.0, 1e4, torch.inf])
def test_where_every_trial_runs_away_the_step_is_that_of_the_shortest(excess):
    sweep = trials_of(numbers(5, 50, 5e6), numbers(excess, 2 * excess, 1e9), 1e-4)
    chosen, on_T = ended(sweep, "lr")
    assert chosen == 0
    assert not on_T.any()
    if excess < torch.inf:
        over = excess / max(1 - excess, 0.01)
        assert most_lr(sweep) == pytest.approx(0.03 / over * 1e-4 / 4)
    else:
        assert most_lr(sweep) == pytest.approx(0.03 / (1e9 / 0.01) * 1e-4)


def measured(eigenvalues, nbeta):
    ritz = exactly(torch.as_tensor(eigenvalues, dtype=torch.float64))
    ritz = replace(ritz, vectors=torch.eye(len(eigenvalues)).double()[None, None])
    return MeasuredCurvature(ritz, numbers(0.0), scales(ritz, numbers(0.0)), nbeta)


@pytest.mark.parametrize("max_hold", [0.4, 0.1, 0.05])
def test_the_hold_is_lowered_until_flat_directions_are_free(max_hold):
    eigenvalues, nbeta = [1.0] * 5 + [1e-4] * 5, numbers(1e4)
    how = {"steps_bw_draws": 10, "stride": 1.0, "is_whitened": True}
    gamma = localization_for(measured(eigenvalues, nbeta), **how, max_hold=max_hold)
    ritz = exactly(torch.tensor(eigenvalues, dtype=torch.float64))
    whole, held = held_share(ritz, nbeta, gamma)
    assert whole == pytest.approx(5.0)
    assert held <= max_hold / 2 * whole
    _, before = held_share(ritz, nbeta, 3.2 * gamma)
    is_gentle = gamma == HELD_SINGULAR * 100
    assert is_gentle or before > max_hold / 2 * whole


def test_directions_too_flat_to_be_freed_stay_held():
    eigenvalues, nbeta = [1.0] * 5 + [2e-7] * 5, numbers(1e4)
    how = {"steps_bw_draws": 10, "stride": 1.0, "is_whitened": True}
    gamma = localization_for(measured(eigenvalues, nbeta), **how, max_hold=0.1)
    assert gamma == pytest.approx(1e-3 * HELD_SINGULAR * 100)


def test_what_gamma_takes_is_known_of_a_quadratic():
    h = torch.tensor([4.0, 0.0, 1.0, 0.25], dtype=torch.float64)
    whole, held = held_share(exactly(h), numbers(2.0), numbers(2.0))
    assert whole == pytest.approx(1.5)
    assert held == pytest.approx((1 / 5 + 1 / 2 + 1 / 1.25) / 2)
    _, squared = held_share(exactly(h), numbers(2.0), numbers(2.0), power=2)
    assert squared == pytest.approx((1 / 25 + 1 / 4 + 1 / 1.25**2) / 2)
