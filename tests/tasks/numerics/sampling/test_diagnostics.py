"""Diagnostics of chains, against arviz and against what is known."""

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats
from scipy.signal import lfilter

from curvflow.tasks.numerics.sampling import diagnostics
from curvflow.tasks.numerics.sampling.diagnostics import (
    ess_bulk,
    ess_mean,
    ess_tail,
    geweke,
    mcse_along,
    mcse_mean,
    r_hat,
)

OURS_AND_THEIRS = {
    "r_hat": lambda v: array_stats.rhat(v, method="rank"),
    "ess_bulk": lambda v: array_stats.ess(v, method="bulk"),
    "ess_tail": lambda v: array_stats.ess(v, method="tail", prob=0.05),
    "ess_mean": lambda v: array_stats.ess(v, method="mean"),
    "mcse_mean": lambda v: array_stats.mcse(v, method="mean"),
}
LAWS = {
    "normal": lambda g, shape: g.normal(size=shape),
    "cauchy": lambda g, shape: g.standard_cauchy(size=shape),
    "ties": lambda g, shape: g.integers(0, 3, size=shape).astype(float),
    "slow": lambda g, shape: autoregressive(g, shape, 0.95),
    "alternating": lambda g, shape: autoregressive(g, shape, -0.8),
    "trend": lambda g, shape: g.normal(size=shape) + np.linspace(0, 3, shape[-1]),
    "apart": lambda g, shape: g.normal(size=shape) + np.arange(shape[1])[:, None],
    "one chain stuck": lambda g, shape: (
        g.normal(size=shape) * (np.arange(shape[1]) > 0)[:, None]
    ),
}


def autoregressive(generator, shape, rho):
    """Stationary AR(1) of unit variance; its ESS for the mean is (1-rho)/(1+rho)."""
    noise = generator.normal(size=shape)
    noise[..., 1:] *= np.sqrt(1 - rho**2)
    return lfilter([1], [1, -rho], noise, axis=-1)


@pytest.mark.parametrize("name", OURS_AND_THEIRS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("chains", "draws"), [(2, 8), (2, 9), (3, 31), (4, 500)])
def test_numbers_equal_those_of_arviz(name, law, chains, draws):
    values = LAWS[law](np.random.default_rng(draws), (3, chains, draws))
    ours = getattr(diagnostics, name)(torch.from_numpy(values))
    theirs = OURS_AND_THEIRS[name](values)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression_are_as_known(rho):
    values = autoregressive(np.random.default_rng(1), (40, 4, 2000), rho)
    found = ess_mean(torch.from_numpy(values)) / 8000
    assert found.median() == pytest.approx((1 - rho) / (1 + rho), rel=0.1)


def test_the_standard_error_is_what_means_scatter_by():
    values = torch.from_numpy(
        autoregressive(np.random.default_rng(2), (400, 4, 500), 0.8)
    )
    z = values.mean((1, 2)) / mcse_mean(values)
    assert z.std() == pytest.approx(1, abs=0.12)


def test_geweke_z_is_standard_normal_if_chains_are_stationary():
    values = autoregressive(np.random.default_rng(3), (400, 4, 1000), 0.5)
    z = geweke(torch.from_numpy(values))
    assert abs(z.mean()) < 0.2
    assert z.std() == pytest.approx(1, abs=0.2)


def test_geweke_sees_a_rise_and_its_sign():
    rise = torch.linspace(0, 1, 400, dtype=torch.float64)
    noise = torch.from_numpy(np.random.default_rng(4).normal(size=(1, 4, 400)))
    assert geweke(noise + rise) > 3
    assert geweke(noise - rise) < -3


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_member_with_a_number_that_is_not_finite_gets_nan_alone(bad):
    values = torch.from_numpy(np.random.default_rng(5).normal(size=(2, 4, 50)))
    spoilt = values.clone()
    spoilt[1, 2, 30] = bad
    for measure in (r_hat, ess_bulk, ess_tail, ess_mean, mcse_mean, geweke):
        found = measure(spoilt)
        assert found[0] == measure(values)[0]
        assert found[1].isnan()


def test_chains_without_spread():
    equal = torch.full((1, 4, 20), 0.1, dtype=torch.float64)
    assert r_hat(equal).isnan()
    assert ess_bulk(equal) == ess_tail(equal) == ess_mean(equal) == 80
    assert mcse_mean(equal) < 1e-16
    apart = equal * torch.arange(1, 5)[:, None]
    assert r_hat(apart).isinf()


def test_noise_does_not_hide_that_a_mean_follows_a_slow_coordinate():
    plain, along, spread = [], [], []
    for seed in range(60):
        source = np.random.default_rng(seed)
        slow = autoregressive(source, (1, 4, 500), 0.99)
        values = torch.as_tensor(0.3 * slow + source.normal(size=slow.shape))
        plain.append(float(mcse_mean(values)))
        along.append(float(mcse_along(values, torch.as_tensor(slow))))
        spread.append(float(values.mean()))
    truth = np.std(spread)
    assert np.mean(plain) < 0.8 * truth
    assert 0.75 * truth < np.mean(along) < 1.5 * truth


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_along_a_coordinate_that_does_not_matter_an_error_is_as_it_was(rho):
    source = np.random.default_rng(1)
    values = torch.as_tensor(autoregressive(source, (3, 4, 500), rho))
    along = torch.as_tensor(source.normal(size=(3, 4, 500)))
    torch.testing.assert_close(
        mcse_along(values, along), mcse_mean(values), rtol=0.1, atol=0
    )
