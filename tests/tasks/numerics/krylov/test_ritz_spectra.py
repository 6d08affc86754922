"""Eigenvalues from stored Ritz data, and which run they are of."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.ritz_spectra import best_run

NAN = torch.nan


def ritz_data(values, residuals):
    """Data of runs of one operator, each a list."""
    values_MSK = torch.tensor([values], dtype=torch.float64)
    residuals_MSK = torch.tensor([residuals], dtype=torch.float64)
    steps = values_MSK.isfinite().sum(2)
    return RitzData(values_MSK, values_MSK / 9, residuals_MSK, steps, 9)


def test_eigenvalues_are_those_of_the_run_whose_worst_residual_is_least():
    ritz = ritz_data(
        [[1, 5, 7], [2, 4, 6], [3, 8, 9]],
        [[0, 0.1, 0.9], [9, 0.5, 0.5], [0, 0.2, 0.8]],
    )
    best = best_run(ritz, k=2, which="LM", tol=0.1)
    assert best.values.tolist() == [[6, 4]]
    assert best.residuals.tolist() == [[0.5, 0.5]]
    assert best.converged.tolist() == [[True, False]]


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_broke_down_before_the_kth_yields_to_one_that_has_it(first):
    broken, whole = ([7, NAN, NAN], [0, NAN, NAN]), ([4, 5, 6], [0.3, 0.3, 0.3])
    runs = (broken, whole) if first else (whole, broken)
    best = best_run(ritz_data(*zip(*runs, strict=True)), k=2, which="LA", tol=0.1)
    assert best.values.tolist() == [[6, 5]]


def test_runs_that_all_broke_down_leave_a_nan_for_what_they_lack():
    ritz = ritz_data([[4, NAN, NAN], [4, 5, NAN]], [[0, NAN, NAN], [1, 1, NAN]])
    best = best_run(ritz, k=3, which="SA", tol=0.1)
    torch.testing.assert_close(
        best.values, torch.tensor([[4, 5, NAN]], dtype=torch.float64), equal_nan=True
    )


def test_more_eigenvalues_than_steps_are_refused():
    with pytest.raises(InputError, match="at most the 3 steps, got 4"):
        best_run(ritz_data([[1, 2, 3]], [[0, 0, 0]]), k=4, which="LM", tol=0.1)
