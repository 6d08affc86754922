"""Lengths and inner products added up in double precision, part by part."""

import pytest
import torch

from curvflow.tasks.numerics.operators import base
from curvflow.tasks.numerics.operators.base import inner, lengths


@pytest.mark.parametrize("dim", [1, 2])
def test_long_vectors_are_added_up_in_parts(monkeypatch, dim):
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 11, 11, dtype=torch.float32)
    exact = (a.double() * b.double()).sum(dim), a.double().norm(dim=dim)
    monkeypatch.setattr(base, "PART", 4)
    torch.testing.assert_close(inner(a, b, dim=dim), exact[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(lengths(a, dim=dim), exact[1], rtol=1e-14, atol=0)


def test_a_length_is_added_up_in_double_precision():
    ones = torch.full((1, 1 << 21), 1e-4, dtype=torch.float32)
    expected = float(ones[0, 0]) * 2**10.5
    assert float(lengths(ones, dim=1)[0]) == pytest.approx(expected, rel=1e-13)


def test_what_is_not_finite_shows_in_the_length(monkeypatch):
    monkeypatch.setattr(base, "PART", 2)
    assert torch.isnan(lengths(torch.tensor([1.0, 2.0, torch.nan]), dim=0))
    assert torch.isinf(lengths(torch.tensor([1.0, 2.0, torch.inf]), dim=0))
