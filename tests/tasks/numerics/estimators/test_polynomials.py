"""Bases of moments."""

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics.estimators.polynomials import BASES, converted, polynomials

SUPPORT = (-1.0, 3.0)


@pytest.mark.parametrize(
    ("basis", "expected"),
    [
        ("chebyshev", lambda x, t: np.cos(7 * np.arccos(t))),
        ("legendre", lambda x, t: 15**0.5 * (429 * t**7 - 693 * t**5) / 16),
        ("power", lambda x, t: x**7),
    ],
)
def test_the_seventh_polynomial_is_the_textbook_s(basis, expected):
    x = torch.linspace(-1, 3, 9, dtype=torch.float64)
    t = (2 * x - 2) / 4
    result = polynomials(basis, x, 8, SUPPORT)[:, 7]
    wanted = expected(x.numpy(), t.numpy())
    if basis == "legendre":
        wanted += 15**0.5 * (315 * t**3 - 35 * t).numpy() / 16
    np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)


def test_legendre_polynomials_are_orthonormal_for_the_flat_law():
    nodes, weights = np.polynomial.legendre.leggauss(12)
    F = polynomials("legendre", torch.as_tensor(nodes), 10, (-1.0, 1.0))
    gram = F.T @ (torch.as_tensor(weights / 2)[:, None] * F)
    torch.testing.assert_close(gram, torch.eye(10).double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("source", BASES)
@pytest.mark.parametrize("target", ["chebyshev", "legendre"])
def test_moments_of_one_basis_become_those_of_another(source, target):
    x = torch.rand(30, dtype=torch.float64) * 4 - 1
    moments = {b: polynomials(b, x, 9, SUPPORT).mean(0) for b in BASES}
    result, turn = converted(moments[source], source, target, SUPPORT)
    torch.testing.assert_close(result, moments[target], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(turn @ moments[source], result)
