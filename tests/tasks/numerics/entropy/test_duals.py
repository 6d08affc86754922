"""Newton's method on the dual of entropy, where the optimum is known."""

import pytest
import torch

from curvflow.tasks.numerics.entropy.duals import Dual, triangle
from curvflow.tasks.numerics.entropy.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.polynomials import polynomials

SUPPORT = (-1.0, 1.0)
FLAT = prior("flat", SUPPORT, 400)


def drawn(seed, count, size, error):
    """A dual with its optimum: moments are those of random multipliers."""
    generator = torch.Generator().manual_seed(seed)
    alpha = size * torch.randn(count, generator=generator, dtype=torch.float64)
    alpha /= 1 + torch.arange(count)
    alpha = alpha.clamp(-5 / error, 5 / error)  # no moment is strained
    design = polynomials("chebyshev", FLAT.nodes, count + 1, SUPPORT)[:, 1:]
    masses = torch.softmax(FLAT.masses.log() - design @ alpha, 0)
    errors = torch.full_like(alpha, error)
    moments = design.T @ masses - errors.square() * alpha
    return Dual(FLAT.masses.log(), design - moments, errors), alpha, masses, moments


@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("size", [1, 30, 300])
def test_random_multipliers_are_found(size, error):
    for seed in range(4):
        for count in (1, 5, 20, 40):
            dual, alpha, masses, moments = drawn(seed, count, size, error)
            found = maxent(
                moments, dual.errors, prior=FLAT, basis="chebyshev",
                support=SUPPORT, floor=1e-12, tol=1e-11,
            )  # fmt: skip
            case = f"seed {seed}, {count} moments"
            assert found.converged, case
            gap = float((found.masses - masses).abs().max())
            assert gap < 1e-6, case
            assert found.dual <= dual.value(alpha) + 1e-9, case


def test_the_value_falls_to_that_of_the_optimum():
    dual, alpha, *_ = drawn(0, 10, 10, 1e-3)
    found, residual, steps = dual.minimised(torch.zeros_like(alpha), 1e-12, 100)
    assert residual <= 1e-12
    assert 0 < steps < 100
    assert dual.value(found) == pytest.approx(dual.value(alpha), abs=1e-12)
    torch.testing.assert_close(found, alpha, rtol=1e-6, atol=1e-6)


def test_steps_end_where_they_are_bounded():
    dual, alpha, *_ = drawn(0, 20, 100, 1e-6)
    start = torch.zeros_like(alpha)
    found, residual, steps = dual.minimised(start, 1e-12, 3)
    assert steps == 3
    assert residual > 1e-12
    assert dual.value(found) < dual.value(start)


def test_the_triangle_is_a_root_of_the_matrix():
    dual, _, masses, _ = drawn(1, 12, 3, 1e-2)
    root = triangle(masses, dual.missing, dual.errors)
    matrix = dual.missing.T @ torch.diag(masses) @ dual.missing
    matrix += torch.diag(dual.errors.square())
    torch.testing.assert_close(root.T @ root, matrix, rtol=0, atol=1e-12)
