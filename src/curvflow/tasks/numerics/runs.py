"""Extreme eigenvalues from Ritz data, without a product."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.eigenpairs import (
    Ritz,
    Which,
    preference,
    within_tolerance,
)
from curvflow.tasks.numerics.lanczos import RitzData, breakdown_tolerance


def best_run(ritz: RitzData, *, k: int, which: Which, tol: float) -> Ritz:
    """Take the eigenvalues of the run whose worst residual is the least.

    All come from one run, as a second run finds the same ones again. A run from one
    vector finds a repeated eigenvalue once.

    Args:
        ritz: runs from random vectors.
        k: eigenvalues wanted.
        which: which of them.
        tol: residual allowed, relative to the eigenvalue.

    Returns:
        The values with residuals and flags, without vectors; NaN where the runs end
        before the k-th. No product is counted.

    Raises:
        InputError: there are fewer steps than eigenvalues wanted.
    """
    models, _, length = ritz.values.shape
    if k > length:
        raise InputError(f"k: expected at most the {length} steps, got {k}. Lower k.")
    order = _present_first(ritz, which)[..., :k]
    values_MSK = ritz.values.gather(2, order)
    residuals_MSK = ritz.residuals.gather(2, order)
    worst_MS = residuals_MSK.nan_to_num(nan=0.0).amax(2)
    short_MS = k - values_MSK.isfinite().sum(2)
    best_M = (
        worst_MS.masked_fill(short_MS > short_MS.amin(1, keepdim=True), torch.inf)
    ).argmin(1)
    rows = torch.arange(models)
    values, residuals = values_MSK[rows, best_M], residuals_MSK[rows, best_M]
    largest_M = ritz.values.abs().nan_to_num(nan=0.0).amax((1, 2))
    none = torch.zeros(models, dtype=torch.int64)
    return Ritz(
        values,
        values.new_zeros(models, 0, k),
        residuals,
        within_tolerance(
            values,
            residuals,
            largest_M,
            tol=tol,
            zero=breakdown_tolerance(torch.float64),
        ),
        none,
        none,
    )


def _present_first(ritz: RitzData, which: Which) -> Tensor:
    """Return the numbers of the nodes, the most wanted first, what is absent last."""
    least = {"LM": 0.0, "LA": -torch.inf, "SA": torch.inf}[which]
    return preference(ritz.values.nan_to_num(nan=least), which)
