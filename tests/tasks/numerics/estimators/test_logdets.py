"""Log-determinants from Lanczos runs."""

import math

import pytest
import torch

from curvflow.tasks.numerics.estimators.logdets import (
    Controls,
    by_chebyshev,
    by_entropy,
    by_quadrature,
    moment_controls,
)
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.operators.base import BatchedDense
from tests.tasks.toys import with_spectrum

VALUES = torch.logspace(-2, 1, 80, dtype=torch.float64)
TRUTH = float(VALUES.log().sum())
A = with_spectrum(VALUES, 0)


def runs(count=40, steps=40, seed=0, matrix=A):
    z = random_vectors([seed], len(matrix), range(count), "rademacher")
    return lanczos(BatchedDense(matrix[None]), z, num_steps=steps)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_methods_are_within_five_standard_errors(seed):
    ritz = runs(seed=seed)
    result = [
        by_quadrature(ritz, floor=0.01),
        by_chebyshev(ritz, degree=70, low=0.01, high=10.0),
        by_entropy(ritz, num_moments=30, support=(0.005, 10.5), law="log"),
    ]
    for one in result:
        assert abs(one.value - TRUTH) < 5 * one.sem
        assert one.converged


def test_known_traces_take_noise_off():
    ritz = runs()
    known = moment_controls(ritz, float(VALUES.mean()), float(VALUES.square().mean()))
    plain, freed = by_quadrature(ritz), by_quadrature(ritz, controls=known)
    assert freed.sem < plain.sem
    assert abs(freed.value - TRUTH) < 5 * freed.sem
    fitted = by_entropy(
        ritz, num_moments=30, support=(0.005, 10.5), law="log", controls=known
    )
    assert fitted.value == pytest.approx(freed.value, abs=plain.sem)
    assert fitted.sem < plain.sem


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_error_with_controls_is_that_of_a_fit_at_their_known_means(seed):
    ritz = runs(count=30, seed=seed)
    known = moment_controls(ritz, float(VALUES.mean()), float(VALUES.square().mean()))
    draws = by_quadrature(ritz, floor=0.01).draws
    design = torch.cat([torch.ones(30, 1).double(), known.draws - known.means], 1)
    fit = torch.linalg.lstsq(design, draws[:, None]).solution[:, 0]
    variance = (draws - design @ fit).square().sum() / (30 - 3)
    share = torch.linalg.inv(design.T @ design)[0, 0]
    freed = by_quadrature(ritz, floor=0.01, controls=known)
    assert freed.value == pytest.approx(float(fit[0]), rel=1e-10)
    assert freed.vectors == pytest.approx(float((variance * share).sqrt()), rel=1e-8)
    assert freed.vectors > float((variance / 30).sqrt())


def test_a_control_that_does_not_vary_changes_nothing():
    ritz = runs(count=16)
    plain = by_quadrature(ritz, floor=0.01)
    constant = Controls(torch.full((16, 1), 0.3).double(), torch.tensor([0.2]).double())
    freed = by_quadrature(ritz, floor=0.01, controls=constant)
    assert freed.value == pytest.approx(plain.value, rel=1e-12)
    spread = float(plain.draws.square().mean() - plain.draws.mean().square())
    assert freed.vectors == pytest.approx((spread / 14) ** 0.5, rel=1e-6)


def test_few_runs_are_not_regressed():
    ritz = runs(count=5)
    known = moment_controls(ritz, 0.0, 0.0)  # wrong, so that use would be seen
    assert by_quadrature(ritz, controls=known).value == by_quadrature(ritz).value


def test_the_prior_decides_where_moments_are_silent():
    values = torch.logspace(-8, 0, 100, dtype=torch.float64)
    ritz = runs(steps=15, matrix=with_spectrum(values, 1))
    flat, log = (
        by_entropy(ritz, num_moments=20, support=(1e-8, 1.0), law=law).value
        for law in ("flat", "log")
    )
    assert abs(flat - log) > 0.2 * abs(float(values.log().sum()))


def test_scaling_adds_the_logarithm_of_the_factor():
    one, other = (by_quadrature(runs(matrix=c * A, count=5)).value for c in (1.0, 3.0))
    assert other - one == pytest.approx(80 * math.log(3), rel=1e-9)


# Granziol (2020), Table 4.5: ratio of the largest two eigenvalues, steps, bounds
# of the errors of Lanczos and of the power method.
TABLE = [
    (1.5, 5, 1.1e-4, 3.9e-2),
    (1.5, 10, 2.0e-10, 6.8e-4),
    (1.5, 15, 3.9e-16, 1.2e-5),
    (1.5, 20, 7.4e-22, 2.0e-7),
    (1.1, 5, 2.7e-2, 4.7e-1),
    (1.1, 10, 5.5e-5, 1.8e-1),
    (1.1, 15, 1.1e-7, 6.9e-2),
    (1.1, 20, 2.1e-10, 2.7e-2),
    (1.01, 5, 5.6e-1, 9.2e-1),
    (1.01, 10, 1.0e-1, 8.4e-1),
    (1.01, 15, 1.5e-2, 7.6e-1),
    (1.01, 20, 2.0e-3, 6.9e-1),
]


@pytest.mark.parametrize(("ratio", "steps", "by_lanczos", "by_power"), TABLE)
def test_table_4_5_is_that_of_the_formulas(ratio, steps, by_lanczos, by_power):
    wave = math.cosh((steps - 1) * math.acosh(2 * ratio - 1))
    assert 1 / wave**2 == pytest.approx(by_lanczos, rel=0.05)
    assert ratio ** (-2 * (steps - 1)) == pytest.approx(by_power, rel=0.05)


@pytest.mark.parametrize(("ratio", "steps"), [row[:2] for row in TABLE if row[1] < 20])
def test_matrices_of_table_4_5_keep_to_its_bounds(ratio, steps):
    """Errors of a matrix with these eigenvalues, against the bounds times tan^2."""
    values = torch.cat(
        [torch.tensor([ratio]).double(), torch.linspace(0, 1, 60).double()]
    )
    start = torch.ones(61, dtype=torch.float64)
    tan2 = 60.0  # of the angle between the start and the first eigenvector
    ritz = lanczos(
        BatchedDense(torch.diag(values)[None]), start[None, :, None], num_steps=steps
    )
    error = ratio - float(ritz.values[0, 0].max())
    wave = math.cosh((steps - 1) * math.acosh(2 * ratio - 1))
    assert -1e-12 < error <= ratio * tan2 / wave**2 + 1e-12
    power = values ** (steps - 1)
    rayleigh = float((power**2 @ values) / power.square().sum())
    assert error <= ratio - rayleigh <= ratio * tan2 * ratio ** (-2 * (steps - 1))
