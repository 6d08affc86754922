"""Measures of a module in training: each from the operators and estimators of a probe.

Letters of the shape suffixes: D parameters, L parameter tensors, M models, of which
there is one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.probes.extremes.eigenvalues import EigenvaluesParams
from curvflow.schemas.nodes import Array
from curvflow.tasks.curvature.eigensolvers import (
    check_count,
    num_columns,
    random_columns,
    solve,
    warm_columns,
)
from curvflow.tasks.library.arguments import checked
from curvflow.tasks.library.operators import SymmetricOperator, of_curvature
from curvflow.tasks.monitor.settings import (
    CriticalSettings,
    SharpnessSettings,
    TraceSettings,
)
from curvflow.tasks.numerics.derivatives.batches import Batch, targets_of
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.modules import hessian_at
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import Subject
from curvflow.tasks.numerics.estimators.learning_rates import critical_rate
from curvflow.tasks.numerics.operators.algebra import Copies

Numbers = dict[str, Any]


def operator_of(of: Subject, order: Order) -> SymmetricOperator:
    """Return the Hessian of a subject as the operator of `curvflow.hessian`."""
    return of_curvature(hessian_at(of, order), "hessian")


def sharpness(
    operator: SymmetricOperator,
    settings: SharpnessSettings,
    near_D: Tensor | None,
    *,
    seed: int,
) -> tuple[Numbers, Tensor]:
    """Find the largest eigenvalue, from the eigenvector of weights before these.

    Args:
        operator: the Hessian.
        settings: tolerance and block.
        near_D: that eigenvector; None begins with random columns, as
            `operator.eigenvalues(1, which="LA")` does.
        seed: of the random columns.

    Returns:
        Numbers by name, and the eigenvector, (D,).

    Raises:
        InputError: a product holds NaN or infinity.
    """
    params = checked(
        EigenvaluesParams,
        k=1,
        which="LA",
        method="lanczos",
        dtype=str(operator.dtype).removeprefix("torch."),
        **settings.model_dump(),
    )
    size = operator.shape[0]
    check_count(params, size)
    start_MDB = random_columns(seed, size, num_columns(params, size)).unsqueeze(0)
    if near_D is not None:
        start_MDB = warm_columns(near_D.cpu()[None, :, None], start_MDB)
    # As in a study, for equal bits: see decision 0003.
    pair = Copies(operator.batched, 2)
    ritz = solve(pair, start_MDB.expand(2, -1, -1), params)
    numbers = {
        "sharpness": float(ritz.values[0, 0]),
        "sharpness_residual": float(ritz.residuals[0, 0]),
        "sharpness_converged": bool(ritz.converged[0, 0]),
        "sharpness_matvecs": int(ritz.num_matvecs[0]),
    }
    return numbers, ritz.vectors[0, :, 0].cpu()


def trace(
    operator: SymmetricOperator, settings: TraceSettings, *, seed: int
) -> Numbers:
    """Estimate the trace, as `operator.trace` does.

    Args:
        operator: the Hessian.
        settings: vectors and method.
        seed: of the vectors, the same at every step.

    Returns:
        Numbers by name.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    result = operator.trace(**settings.model_dump(), seed=seed)
    return {
        "trace": result.value,
        "trace_sem": result.sem,
        "trace_matvecs": result.num_matvecs,
    }


def mean_loss(of: Subject, weights_D: Tensor) -> float:
    """Return the mean loss over all data at some weights, in double precision."""
    total, weight = 0.0, 0.0
    with torch.no_grad(), differentiable():
        for batch in of.batches():
            outputs = of.outputs(weights_D, batch)
            losses = of.loss(outputs, targets_of(batch)).double()
            size = of.size_of(batch)
            total += size * float(losses.mean())
            weight += size
    return total / weight


def gradient(of: Subject, batch: Batch) -> Tensor:
    """Return the gradient of the mean loss over a batch, (D,).

    By autograd and not by `torch.func`, which some modules cannot take.
    """
    leaf_D = of.weights.detach().requires_grad_()
    with differentiable():
        loss = of.mean_loss(of.outputs(leaf_D, batch), batch)
        (slope_D,) = torch.autograd.grad(loss, leaf_D, materialize_grads=True)
    return slope_D


def gradient_of_all(of: Subject) -> Tensor:
    """Return the gradient of the mean loss over all data, (D,), in double precision."""
    total_D, weight = torch.zeros_like(of.weights, dtype=torch.float64), 0.0
    for batch in of.batches():
        total_D += of.size_of(batch) * gradient(of, batch)
        weight += of.size_of(batch)
    return total_D / weight


def critical(
    of: Subject, slope_D: Tensor, settings: CriticalSettings, start: float
) -> Numbers:
    """Find the smallest learning rate at which a step along -g raises the loss.

    Args:
        of: the module, its loss and data.
        slope_D: gradient over all data, g.
        settings: tolerance, and evaluations at most.
        start: rate tried first, such as the one found before.

    Returns:
        Numbers by name; rates are NaN if none was found.

    Reference:
        Kalra et al. (2026), arXiv:2601.16979, who search along the step of the rule.
    """

    def losses_at(rate_M: Tensor) -> Tensor:
        moved_D = of.weights - (float(rate_M) * slope_D).to(of.weights)
        return torch.tensor([mean_loss(of, moved_D)], dtype=torch.float64)

    begin_M = torch.tensor([start], dtype=torch.float64)
    result = critical_rate(
        losses_at, begin_M, tol=settings.tol, max_passes=settings.max_passes
    )
    rate = float(result.rate)
    return {
        "critical_lr": rate,
        "critical_sharpness": 2 / rate,
        "critical_converged": bool(result.converged),
        "critical_passes": int(result.passes) + 1,
    }


def update_ratio(of: Subject, before_D: Tensor) -> Numbers:
    """Return how far the weights have moved, relative to what they were.

    Args:
        of: the module at its weights.
        before_D: weights at the last measurement.

    Returns:
        Numbers by name; NaN where the weights were zero.
    """
    before_D = before_D.to(of.weights).double()
    moved_L = _norms(of.weights.double() - before_D, of.sizes)
    size_L = _norms(before_D, of.sizes)
    whole = float(np.linalg.norm(size_L))
    return {
        "update_ratio": float(np.linalg.norm(moved_L)) / (whole or math.nan),
        "layer_update_ratio": moved_L / np.where(size_L > 0, size_L, math.nan),
    }


def _norms(vector_D: Tensor, sizes: list[int]) -> Array:
    parts = torch.split(vector_D, sizes)
    return np.array([float(part.norm()) for part in parts])
