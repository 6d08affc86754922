"""Kernel matrices as data."""

import numpy as np
import pytest
import torch

from curvflow.tasks.curvature.operators import matrix_operator
from curvflow.tasks.registry import Machine
from tests.tasks.matrices import matrix_of
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.kernel_matrix"


@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_both_forms_hold_the_same_matrix(law):
    params = {"num_points": 30, "dimension": 2, "points": law, "kernel": "matern32"}
    dense, implicit = (
        matrix_of(KIND, {**params, "form": form}) for form in ("dense", "kernel")
    )
    operator = matrix_operator(implicit, Machine(), torch.float64)
    actual = operator @ torch.eye(30, dtype=torch.float64)
    np.testing.assert_allclose(actual, dense["dense"], rtol=1e-10, atol=1e-13)
    assert dense["points"].size == 0
    assert implicit["dense"].size == 0


def test_entries_are_the_formula_s():
    points = matrix_of(KIND, {"num_points": 9, "form": "kernel"})["points"]
    squares = ((points[:, None] - points[None]) ** 2).sum(2)
    expected = np.exp(-squares / (2 * 0.3**2)) + 1e-3 * np.eye(9)
    params = {"num_points": 9, "length_scale": 0.3, "noise": 1e-3}
    np.testing.assert_allclose(matrix_of(KIND, params)["dense"], expected, rtol=1e-10)
    assert 0 <= points.min() < points.max() <= 1


def test_the_seed_decides_the_points():
    a, b, c = (
        matrix_of(KIND, {"num_points": 5, "seed": seed})["dense"] for seed in (1, 1, 2)
    )
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_what_is_returned_is_declared():
    members = [member(KIND, {"num_points": 4, "form": f}) for f in ("dense", "kernel")]
    for outcome in compute(KIND, members):
        assert_declared(KIND, outcome)
