"""Second moments, added up in stripes or whole, against sums written out."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch

from curvflow.tasks.numerics import stream
from curvflow.tasks.numerics.kronecker import moments
from curvflow.tasks.numerics.kronecker.layers import Sides
from curvflow.tasks.numerics.kronecker.moments import (
    Moments,
    _Sums,
    add_moment,
    gram,
    num_stripes,
    some_at_a_time,
)

# Samples, draws, positions and columns: norms by rows or by columns, whole or in
# stripes.
SHAPES = {
    "rows": (5, 1, 2, 7),
    "columns": (5, 2, 4, 3),
    "columns, in parts": (9, 1, 90, 101),
    "rows, stripes": (200, 1, 1, 260),
    "columns, stripes": (2, 3, 60, 262),
}


@cache
def written_out(shape):
    """Return rows of two passes, their second moments and the squares of norms."""
    samples, draws, positions, size = shape
    drawn = torch.randn(
        2, 2, samples, draws, 3, positions, size,
        generator=stream(0, "rows"), dtype=torch.float64,
    )  # fmt: skip
    total = torch.zeros(2, 3, size, size, dtype=torch.float64)
    squares = torch.zeros(2, 2, dtype=torch.float64)
    # Matrices of one sample at a time: of all they would take gigabytes.
    for sample in drawn.unbind(2):
        each = torch.einsum("pmrgtk,pmrgtl->pmgkl", sample, sample)
        total += each.sum(0)
        squares += each.square().sum((2, 3, 4))
    return drawn, total, squares


@pytest.mark.parametrize("most", [moments.MOST_AT_ONCE, 1 << 16])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_moments_and_norms_of_passes_are_those_written_out(shape, most, monkeypatch):
    monkeypatch.setattr(moments, "MOST_AT_ONCE", most)
    samples, draws, positions, size = shape
    drawn, total, squares = written_out(shape)
    number = num_stripes(samples * draws * positions, size)
    into = torch.full((2, 3, size, size), torch.nan, dtype=torch.float64)
    found = [
        add_moment([rows], into, one == 0, number)() for one, rows in enumerate(drawn)
    ]
    torch.testing.assert_close(torch.stack(found), squares, rtol=1e-12, atol=0)
    torch.testing.assert_close(into.tril(), total.tril(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("has_spread", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_all_models_have_are_multiplied_once_with_the_same_bits(
    dtype, has_spread, monkeypatch
):
    multiply, multiplied = moments._add_gram, []

    def counted(rows, *given):
        multiplied.append(len(rows))
        multiply(rows, *given)

    monkeypatch.setattr(moments, "_add_gram", counted)
    drawn = torch.randn(1, 200, 1, 1, 1, 260, generator=stream(0, "x"), dtype=dtype)
    rows = drawn.expand(3, *[-1] * 5)
    part = SimpleNamespace(rows=slice(0, 200))
    found = []
    for given in (rows, rows.clone()):
        sums, of = _Sums(), Moments(None, "expand", 200, has_spread=has_spread)
        squares = of._add_moment([given], sums, part, 200)()
        found.append((sums.moments[0].tril(), squares))
    assert all(map(torch.equal, *found))
    assert multiplied == [1, 3]


@pytest.mark.parametrize("most", [moments.MOST_AT_ONCE, 1 << 10])
@pytest.mark.parametrize("kind", [(1, 1), (1, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("size", [5, 40, 262])
def test_draws_apart_and_divided_are_added_as_side_by_side(
    kind, size, most, monkeypatch
):
    monkeypatch.setattr(moments, "MOST_AT_ONCE", most)
    models, groups = kind
    drawn = torch.randn(
        2, models, 4, 3, groups, 17, size,
        generator=stream(0, "rows"), dtype=torch.float64,
    )  # fmt: skip
    number = num_stripes(4 * 3 * 17, size)
    sums = torch.zeros(2, models, groups, size, size, dtype=torch.float64)
    squares = [
        [
            add_moment(given, into, one == 0, number, divisor=divisor)()
            for one, rows in enumerate(drawn)
            for given in [rows.split(1, dim=2) if is_apart else [rows]]
        ]
        for into, divisor, is_apart in ((sums[0], 1, False), (sums[1], 7, True))
    ]
    torch.testing.assert_close(squares[1], squares[0], rtol=1e-12, atol=0)
    close = {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(7 * sums[1].tril(), sums[0].tril(), **close)


@pytest.mark.parametrize("models", [1, 3])
def test_samples_come_a_few_at_a_time_whatever_the_number_of_models(
    models, monkeypatch
):
    monkeypatch.setattr(moments, "MOST_ROWS", 1 << 10)
    generator = stream(0, "sides")
    left = torch.randn(models, 7, 2, 3, 40, 2, generator=generator)
    right = torch.randn(models, 7, 1, 3, 40, 5, generator=generator)
    several = list(some_at_a_time([Sides(left, right)]))
    # A sample has 600 numbers of its right rows, so that one alone is taken.
    assert [one.left.shape[1] for (one,) in several] == [1] * 7
    assert torch.equal(torch.cat([one.left for (one,) in several], 1), left)
    assert torch.equal(torch.cat([one.right for (one,) in several], 1), right)


def test_samples_that_are_small_beside_their_sum_come_together(monkeypatch):
    monkeypatch.setattr(moments, "MOST_ROWS", 1)
    left, right = torch.zeros(1, 9, 1, 1, 1, 20), torch.zeros(1, 9, 1, 1, 1, 10)
    sizes = [one.left.shape[1] for (one,) in some_at_a_time([Sides(left, right)])]
    assert sizes == [9]  # of 40 samples there are four times 200 numbers


@pytest.mark.parametrize(("rows", "size"), [(3, 5), (200, 260), (3, 260)])
def test_grams_are_symmetric_products(rows, size):
    drawn = torch.randn(2, rows, size, generator=stream(0, "x"), dtype=torch.float64)
    found = gram(drawn)
    torch.testing.assert_close(found, drawn.mT @ drawn, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, found.mT, rtol=1e-12, atol=1e-12)
