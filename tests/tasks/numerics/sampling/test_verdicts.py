"""Verdicts on chains of a known kind: good ones, and each way to be bad."""

import math

import pytest
import torch

from curvflow.tasks.numerics.sampling.chain_results import bias_of_spectrum
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.numerics.sampling.verdicts import Chains, judge

CHAINS, SIZE, NBETA, INIT_LOSS, LOCALIZATION = 4, 10, 1000.0, 0.3, 1.0
CURVATURES = torch.linspace(0.1, 1, SIZE, dtype=torch.float64)
FINE = torch.full((CHAINS,), -1)


def quadratic(seed, draws=500, rho=0.6, start=None):
    """Chains in a bowl: each weight an AR(1) of the posterior's variance.

    Returns losses and distances, (CHAINS, draws).
    """
    torch.manual_seed(seed)
    spread = (NBETA * CURVATURES + LOCALIZATION).rsqrt()
    noise = torch.randn(draws, CHAINS, SIZE, dtype=torch.float64) * spread
    weights = [noise[0] if start is None else torch.full_like(noise[0], start)]
    for drawn in noise[1:]:
        weights.append(rho * weights[-1] + math.sqrt(1 - rho**2) * drawn)
    weights = torch.stack(weights, 1)
    return INIT_LOSS + weights.square() @ CURVATURES / 2, weights.norm(dim=2)


def verdict(losses, distances, acceptance=0.6, failed_at=FINE, **others):
    accepted = torch.as_tensor(acceptance, dtype=torch.float64).expand(len(losses))
    settings = {"localization": LOCALIZATION, "num_parameters": SIZE} | others
    summary = summarise(losses, INIT_LOSS, NBETA, failed_at)
    known = {"init_loss": INIT_LOSS, "nbeta": NBETA}
    return judge(
        Chains(summary, losses, distances, accepted, failed_at, **known, **settings)
    )


def test_good_chains_are_converged_nearly_always():
    names = [verdict(*quadratic(seed)).name for seed in range(100)]
    assert names.count("converged") >= 95, names


def test_the_estimate_is_within_its_error_of_half_the_effective_dimension():
    heat = NBETA * CURVATURES
    truth = float((heat / (heat + LOCALIZATION)).sum()) / 2
    z = []
    for seed in range(100):
        found = summarise(quadratic(seed)[0], INIT_LOSS, NBETA, FINE)
        assert found.llc_mean == pytest.approx(float(found.llc_per_chain.mean()))
        z.append((found.llc_mean - truth) / found.llc_sem)
    assert abs(sum(z)) / 10 < 4
    assert torch.tensor(z).std() == pytest.approx(1, abs=0.25)


def test_an_error_that_the_draws_do_not_show_is_reported():
    losses, distances = quadratic(0)
    sem = summarise(losses, INIT_LOSS, NBETA, FINE).llc_sem
    mean = summarise(losses, INIT_LOSS, NBETA, FINE).llc_mean
    assert 2 * sem < 0.05 * mean  # so that the share decides
    for slow, name in ((0.049, "converged"), (0.051, "drifting")):
        found = verdict(losses, distances, slow_error=slow * mean)
        assert found.name == name
        assert "not looked for" not in found.reason
    assert f"the draws show {sem:.2g}" in found.reason


def test_a_failed_chain_is_counted_and_not_averaged():
    losses, distances = quadratic(0)
    spoilt = losses.clone()
    spoilt[2, 300:] = torch.nan
    failed_at = torch.tensor([-1, -1, 1700, -1])
    found = verdict(spoilt, distances, failed_at=failed_at)
    assert found.name == "failed"
    assert found.reason.startswith(
        "1 of 4 chains left the finite numbers, at step 1700"
    )
    summary = summarise(spoilt, INIT_LOSS, NBETA, failed_at)
    others = summarise(losses[[0, 1, 3]], INIT_LOSS, NBETA, FINE[:3])
    assert summary.num_failed == 1
    assert summary.llc_mean == others.llc_mean
    assert summary.llc_sem == others.llc_sem
    assert summary.llc_per_chain.isnan().tolist() == [False, False, True, False]


def test_without_a_chain_left_there_is_no_estimate():
    losses, distances = quadratic(0, draws=20)
    failed_at = torch.zeros(CHAINS, dtype=torch.int64)
    assert verdict(losses, distances, failed_at=failed_at).name == "failed"
    found = summarise(losses, INIT_LOSS, NBETA, failed_at)
    assert found.num_failed == CHAINS
    assert math.isnan(found.llc_mean)
    assert found.llc_per_chain.isnan().all()


def test_a_nan_that_nobody_reported_is_a_failure_too():
    losses, distances = quadratic(0)
    losses[1, -1] = torch.inf
    assert verdict(losses, distances).name == "failed"


def test_losses_below_that_of_the_weights_are_negative():
    losses, distances = quadratic(1)
    found = verdict(losses - 0.02, distances)
    assert found.name == "negative"
    assert "which are no local minimum" in found.reason


def test_one_chain_that_finds_a_lower_basin_is_enough():
    losses, distances = quadratic(2)
    losses[3] -= 0.02
    assert verdict(losses, distances).name == "negative"


def test_without_curvature_the_reason_says_what_is_not_known():
    found = verdict(*quadratic(0))
    assert found.name == "converged"
    assert found.reason.endswith("; directions too slow for them were not looked for")


def test_a_flat_loss_is_not_negative_by_rounding():
    losses = torch.full((CHAINS, 100), INIT_LOSS, dtype=torch.float64) - 1e-7
    found = verdict(losses, torch.ones_like(losses))
    assert found.name == "converged"


def test_chains_that_stand_still_drift():
    still = torch.zeros(CHAINS, 500, dtype=torch.float64)
    found = verdict(still + 0.3, still, acceptance=1.0)
    assert (found.name, found.reason[:27]) == (
        "drifting",
        "the chains have not moved f",
    )


def test_a_chain_far_beyond_the_localisation_has_escaped():
    losses, distances = quadratic(3)
    distances[1] += 6 * math.sqrt(SIZE / LOCALIZATION)
    found = verdict(losses, distances)
    assert found.name == "escaped"
    assert "beyond the 3.16 that localization alone" in found.reason


def test_a_plateau_far_above_that_of_a_minimum_has_escaped():
    losses, distances = quadratic(4)
    found = verdict(losses + 0.03, distances)
    assert found.name == "escaped"
    assert "above the 10 parameters" in found.reason


def test_a_chain_that_leaves_faster_than_a_random_walk_has_escaped():
    losses, distances = quadratic(5)
    leaving = torch.linspace(0, 1, 500, dtype=torch.float64) ** 4
    losses[0] += 0.05 * leaving
    distances[0] += 2 * leaving
    found = verdict(losses, distances, localization=0.0)
    assert found.name == "escaped"
    assert "faster than a random walk" in found.reason


def test_spreading_along_equal_losses_is_reported_and_allowed():
    losses, distances = quadratic(6)
    walk = torch.linspace(0, 1, 500, dtype=torch.float64).sqrt()
    found = verdict(losses, distances + walk)
    assert found.name == "converged"
    assert "spread along losses alike" in found.reason


@pytest.mark.parametrize(
    ("chains", "why"),
    [
        ({"rho": 0.6, "draws": 30}, "R-hat|independent ones"),
        ({"rho": 0.99}, "R-hat|independent ones"),
        ({"rho": 0.97, "start": 0.0}, "R-hat|rises|independent ones"),
        ({"rho": 0.9, "start": 0.4}, "falls|independent ones"),
    ],
)
def test_chains_too_short_too_slow_or_not_burnt_in_drift(chains, why):
    found = verdict(*quadratic(7, **chains))
    assert found.name == "drifting"
    assert any(word in found.reason for word in why.split("|"))


def test_chains_at_different_levels_drift():
    losses, distances = quadratic(8)
    found = verdict(losses + 0.0008 * torch.arange(CHAINS)[:, None], distances)
    assert found.name == "drifting"
    assert "R-hat" in found.reason


@pytest.mark.parametrize(
    "spoilt", [{"acceptance": 0.05}, {"bias": 0.08}, {"off_plateau": "lr"}]
)
def test_steps_too_large_are_named(spoilt):
    found = verdict(*quadratic(9), **spoilt)
    assert found.name == "step too large"
    assert "Lower lr" in found.reason


def test_trials_on_no_plateau_of_the_hold_are_reported():
    found = verdict(*quadratic(0), off_plateau="localization")
    assert found.name == "converged"
    assert "trials held less and more give other estimates" in found.reason
    assert "trials" not in verdict(*quadratic(0)).reason


def test_a_coefficient_of_which_the_localization_takes_too_much_is_held():
    found = verdict(*quadratic(0), hold_share=0.3, max_hold=0.1)
    assert found.name == "held"
    assert "takes 30% of the coefficient, above the 10% of max_hold" in found.reason
    # That of a localization which was given is reported alone.
    given = verdict(*quadratic(0), hold_share=0.3)
    assert given.name == "converged"
    assert "of this localization, which takes 30%" in given.reason
    assert "localization" not in verdict(*quadratic(0), hold_share=0.01).reason


def test_where_every_chain_failed_there_is_no_estimate():
    losses, distances = quadratic(0)
    lost = torch.full_like(losses, torch.nan)
    found = verdict(lost, distances, failed_at=torch.arange(CHAINS))
    assert found.name == "failed"
    assert "4 of 4" in found.reason
    assert "there is no estimate" in found.reason


def test_acceptance_that_was_not_measured_does_not_matter():
    assert verdict(*quadratic(0), acceptance=torch.nan).name == "converged"


def test_bias_by_spectrum_is_the_closed_form_of_a_walk_on_a_quadratic():
    h = torch.tensor([[4.0, 0.5, -1.0, math.nan]], dtype=torch.float64)
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0]], dtype=torch.float64)
    nbeta, gamma, lr = 50.0, 3.0, 0.004
    c = nbeta * h[0, :2] + gamma
    share = weights[0, :2] * nbeta * h[0, :2] / c
    law = (share / (1 - lr * c / 4)).sum() / share.sum() - 1
    found = bias_of_spectrum(h, weights, nbeta, gamma, lr)
    assert found == pytest.approx(float(law), rel=1e-12)
    assert bias_of_spectrum(h, weights, nbeta, gamma, lr=0.1) == math.inf
    assert math.isnan(bias_of_spectrum(0 * h, weights, nbeta, gamma, lr))
