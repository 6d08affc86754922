"""Learning coefficients in closed form, against each other and against integrals."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.integrate import simpson

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.learning_coefficients import (
    Coefficient,
    deep_linear,
    normal_crossing,
    reduced_rank,
    reduced_rank_at,
    regular,
    separable,
    tanh_units,
    weighted_homogeneous,
)

# Widths from inputs to outputs, rank of the truth, d / 2, coefficient, multiplicity.
KNOWN = [
    ([2, 1, 2], 0, 2, 1, 2),
    ([2, 2, 2], 0, 4, 1.5, 1),
    ([3, 3, 3], 0, 9, 3.5, 2),
    ([3, 3, 3], 1, 9, 4, 1),
    ([5, 3, 4], 2, 13.5, 8, 1),
    ([10, 3, 10], 3, 30, 25.5, 1),
    ([10, 10, 10], 0, 100, 37.5, 1),
    ([10, 10, 10], 5, 100, 47, 2),
    ([4, 4, 4, 4], 0, 24, 5.5, 3),
    ([4, 4, 4, 4], 2, 24, 7.5, 3),
    ([5, 4, 3, 5], 1, 23.5, 7.5, 3),
    ([8, 4, 4, 8], 2, 40, 16, 1),
    ([3, 10, 10, 3], 1, 80, 4.5, 1),
    ([1, 1, 1, 1], 0, 1.5, 0.5, 3),
]


def size(widths):
    return sum(before * after for before, after in pairwise(widths))


@pytest.mark.parametrize(("widths", "rank", "half", "value", "multiplicity"), KNOWN)
def test_matrix_products_have_the_values_known(widths, rank, half, value, multiplicity):
    assert regular(size(widths)).value == half
    assert deep_linear(widths, rank) == Coefficient(Fraction(value), multiplicity)


def test_both_formulas_for_two_layers_are_one():
    cases = 0
    for widths in product(range(1, 9), repeat=3):
        for rank in range(min(widths) + 1):
            result = reduced_rank(*widths, rank)
            assert result == deep_linear(widths, rank), (widths, rank)
            assert result.value <= regular(size(widths)).value
            cases += 1
    assert cases == 1808


def test_no_coefficient_exceeds_half_the_parameters_or_the_order_of_layers_matters():
    for widths in product(range(1, 5), repeat=4):
        for rank in range(min(widths) + 1):
            result = deep_linear(widths, rank)
            assert 0 <= result.value <= regular(size(widths)).value
            assert result == deep_linear(widths[::-1], rank)


@pytest.mark.parametrize("layers", [1, 2, 3, 6])
def test_a_chain_of_single_weights_is_a_normal_crossing(layers):
    assert deep_linear([1] * (layers + 1), 0) == normal_crossing([1] * layers)


@pytest.mark.parametrize(
    ("widths", "rank", "ranks", "value"),
    [
        ((3, 3, 3), 0, (3, 0), 4.5),
        ((3, 3, 3), 0, (2, 0), 3.5),
        ((3, 3, 3), 0, (1, 1), 3.5),
        ((4, 3, 3), 1, (3, 1), 5.0),
    ],
)
def test_a_coefficient_depends_on_the_point_of_the_truth(widths, rank, ranks, value):
    result = reduced_rank_at(*widths, rank, ranks=ranks)
    assert result.value == value
    assert result.value >= reduced_rank(*widths, rank).value


def test_it_is_the_smallest_one_where_both_factors_have_the_rank_of_the_truth():
    for widths in product(range(1, 6), repeat=3):
        for rank in range(min(widths) + 1):
            known = reduced_rank(*widths, rank)
            assert reduced_rank_at(*widths, rank, ranks=(rank, rank)) == known
            a = min(widths[:2])
            off = reduced_rank_at(*widths, rank, ranks=(a, rank))
            assert off.value >= known.value


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (lambda: reduced_rank(2, 1, 2, 2), "rank: expected 0 to 1"),
        (lambda: deep_linear([3, 3], -1), "rank: expected 0 to 3"),
        (lambda: reduced_rank_at(3, 3, 3, 1, ranks=(0, 1)), "ranks: expected them"),
        (lambda: reduced_rank_at(3, 3, 3, 0, ranks=(2, 2)), "a sum of at most"),
    ],
)
def test_what_no_matrices_have_is_refused(given, reported):
    with pytest.raises(InputError, match=reported):
        given()


def test_simple_forms():
    half = Fraction(1, 2)
    assert normal_crossing([1, 2]) == Coefficient(half / 2)
    assert normal_crossing([2, 1, 2]) == Coefficient(half / 2, 2)
    assert normal_crossing([1, 2], [0, 1]) == Coefficient(half, 2)
    several = [normal_crossing([k]) for k in (1, 2, 3)]
    assert separable(several) == Coefficient(Fraction(11, 12))
    assert separable([Coefficient(half, 2)] * 2) == Coefficient(Fraction(1), 3)
    assert weighted_homogeneous([half, half / 2]) == Coefficient(Fraction(3, 4))
    assert [tanh_units(h) for h in (1, 2)] == [
        Coefficient(half, 2),
        Coefficient(Fraction(2, 3)),
    ]


# From here on, brute force. ln Z(n), Z the integral of exp(-n K) over a law of the
# weights, falls as lambda ln n - (m - 1) ln ln n.


def crossing(n):
    u = u_grid()
    return log_integral(-n * np.exp(2 * u[:, None] + 2 * u[None]), u, u)


def mixed_crossing(n):  # w^2 v^4
    u = u_grid()
    return log_integral(-n * np.exp(2 * u[:, None] + 4 * u[None]), u, u)


def weighted(n):  # w^2 + v^4
    u = u_grid()
    return log_integral(-n * (np.exp(2 * u[:, None]) + np.exp(4 * u[None])), u, u)


def one_hidden_unit(n):  # |a|^2 |b|^2, a and b of two entries
    u = u_grid()
    K = np.exp(2 * u[:, None] + 2 * u[None])
    return log_integral(-n * K, 2 * u, 2 * u)


def two_hidden_units(n):
    """||B A||^2 of 2 x 2 matrices: B, Gaussian, is integrated out in closed form."""
    u = u_grid()
    s, t = np.exp(2 * u)[:, None], np.exp(2 * u)[None]
    # The law of the squared singular values of a Gaussian A is |s - t| e^(-(s+t)/2).
    with np.errstate(divide="ignore"):
        density = np.log(np.abs(s - t)) - (s + t) / 2
    # d s / sqrt(s) is proportional to exp(u) d u.
    return log_integral(density - np.log1p(2 * n * s) - np.log1p(2 * n * t), u, u)


def one_tanh_unit(n):
    u = u_grid()
    return log_integral(-n * np.exp(2 * u[:, None]) * np.tanh(np.exp(u)) ** 2, u, u)


def two_tanh_units(n):
    """sum a tanh(b x): a, Gaussian, is integrated out; signs of b change nothing."""
    x = np.array([0.5, 1.0, 1.5])
    u = u_grid()
    f = np.tanh(np.exp(u)[:, None] * x)
    C = f @ f.T / len(x)
    rows_of_model = np.diag(C)
    # det C as a sum of squares, since the difference of products would cancel.
    gram = (
        sum(
            (f[:, i, None] * f[None, :, j] - f[:, j, None] * f[None, :, i]) ** 2
            for i, j in [(0, 1), (0, 2), (1, 2)]
        )
        / len(x) ** 2
    )
    det = 1 + 2 * n * (rows_of_model[:, None] + rows_of_model[None]) + 4 * n**2 * gram
    return log_integral(-0.5 * np.log(det), u, u)


def u_grid():
    return np.linspace(-26, 0, 2601)


def log_integral(log_f, log_du, log_dv):
    """Return ln of the integral of f exp(log_du + log_dv) over u and v."""
    whole = np.exp(log_f + log_du[:, None] + log_dv[None])
    u = u_grid()
    return float(np.log(simpson(simpson(whole, x=u), x=u)))


@pytest.mark.parametrize(
    ("log_z", "known"),
    [
        (crossing, normal_crossing([1, 1])),
        (mixed_crossing, normal_crossing([1, 2])),
        (weighted, separable([normal_crossing([1]), normal_crossing([2])])),
        (one_hidden_unit, reduced_rank(2, 1, 2, 0)),
        (two_hidden_units, reduced_rank(2, 2, 2, 0)),
        (one_tanh_unit, tanh_units(1)),
        (two_tanh_units, tanh_units(2)),
    ],
)
def test_integrals_fall_as_the_coefficient_and_its_multiplicity_say(log_z, known):
    n, factor = 1e8, 1.3
    slope = -(log_z(n * factor) - log_z(n / factor)) / (2 * np.log(factor))
    expected = float(known.value) - (known.multiplicity - 1) / np.log(n)
    assert slope == pytest.approx(expected, rel=0.015)
