"""Slices of a loss: directions, points along them, and the quadratic model.

Further letters: P points or steps, Q quantities, E entries and F
filters of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.hessians import Losses
from curvflow.tasks.numerics.derivatives.passes import Draw, Draws, Part, passes, spans
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.operators.base import BatchedOperator

# From the parameters of several points, (P, D), to what is measured there, (Q, P).
Measure = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LocalModel:
    """The quadratic model of M losses along K directions d.

    Attributes:
        slope: d.g with the gradient g, (M, K).
        curvature: d.Hd' of each pair of directions, (M, K, K), symmetric.
        rayleigh: d.Hd / d.d, (M, K).
        residuals: ||Hd - rayleigh d|| / ||d||, (M, K); some eigenvalue lies within it.
    """

    slope: Tensor
    curvature: Tensor
    rayleigh: Tensor
    residuals: Tensor


def filter_normalised(
    draws_MDK: Tensor,
    weights_MD: Tensor,
    shapes: Sequence[Sequence[int]],
    *,
    biases: bool = False,
) -> Tensor:
    """Scale directions, filter by filter, to the norms of the weights.

    A filter is all that one output is computed from: the first index of a tensor of two
    or more dimensions. Within each, directions are orthogonal to those before, if it
    has as many entries as there are directions.

    Args:
        draws_MDK: random directions as columns.
        weights_MD: whose filters give the norms.
        shapes: of the tensors that the D parameters are.
        biases: tensors of one dimension (biases and the scales and shifts of norm
            layers) count as one filter each; else they are not moved.

    Returns:
        The directions, (M, D, K).

    Reference:
        Li, Xu, Taylor, Studer and Goldstein (2018), arXiv:1712.09913, section 4, which
        does not make them orthogonal.
    """
    sizes = [math.prod(shape) for shape in shapes]
    models, _, count = draws_MDK.shape
    parts = []
    for draw, weight, shape in zip(
        torch.split(draws_MDK, sizes, dim=1),
        torch.split(weights_MD, sizes, dim=1),
        shapes,
        strict=True,
    ):
        if len(shape) < 2 and not biases:
            parts.append(torch.zeros_like(draw))
            continue
        filters = shape[0] if len(shape) > 1 else 1
        turned_MFEK = _orthogonal(draw.reshape(models, filters, -1, count))
        lengths_MF = weight.reshape(models, filters, -1).norm(dim=2)
        scaled_MFEK = turned_MFEK * lengths_MF[..., None, None]
        parts.append(scaled_MFEK.reshape(models, -1, count))
    return torch.cat(parts, dim=1)


def _orthogonal(columns: Tensor) -> Tensor:
    """Return unit columns, orthogonal to those before where there is room for it."""
    if columns.shape[-2] < columns.shape[-1]:
        lengths: Tensor = columns.norm(dim=-2, keepdim=True)
        return columns / lengths
    basis: Tensor
    basis, corner = torch.linalg.qr(columns)
    signs: Tensor = corner.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return signs * basis


def principal(displacements_MCD: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the directions that hold most of C displacements, not less their mean.

    Args:
        displacements_MCD: of each checkpoint from where the slice is taken.
        count: directions wanted, K.

    Returns:
        Unit directions (M, D, K), and the share of the squared displacements along
        each, (M, K).

    Raises:
        InputError: the displacements have fewer directions than wanted.
    """
    _, sizes_MC, rows_MCD = torch.linalg.svd(displacements_MCD, full_matrices=False)
    eps = torch.finfo(sizes_MC.dtype).eps * displacements_MCD.shape[2] ** 0.5
    ranks_M = (sizes_MC > 10 * eps * sizes_MC[:, :1]).sum(1)
    if (least := int(ranks_M.min())) < count:
        raise InputError(
            f"num_directions: expected at most {least}, as the checkpoints differ in "
            f"no more directions, got {count}. Keep more checkpoints, or lower it."
        )
    squares_MC = sizes_MC**2
    shares_MK = squares_MC[:, :count] / squares_MC.sum(1, keepdim=True)
    return signed(rows_MCD[:, :count].mT), shares_MK


def signed(directions_MDK: Tensor) -> Tensor:
    """Turn directions so that the entry of largest magnitude is positive."""
    places_M1K = directions_MDK.abs().argmax(dim=1, keepdim=True)
    return directions_MDK * directions_MDK.gather(1, places_M1K).sign()


def line_points(steps_P: Tensor, count: int) -> Tensor:
    """Return coordinates of points along each of K directions in turn, (K P, K)."""
    return torch.cat([torch.outer(steps_P, unit) for unit in torch.eye(count)])


def plane_points(steps_P: Tensor, count: int) -> Tensor:
    """Return coordinates of points in the plane of the first two of K, (P P, K)."""
    pairs = torch.cartesian_prod(steps_P, steps_P)
    return torch.nn.functional.pad(pairs, (0, count - 2))


def along(
    measure: Measure,
    weights_D: Tensor,
    directions_DK: Tensor,
    points_PK: Tensor,
    *,
    points_per_pass: int,
) -> Tensor:
    """Measure one model at points of a line or plane, many of them at once.

    Args:
        measure: what to measure of a batch of models.
        weights_D: where all coordinates are zero.
        directions_DK: what a coordinate of one moves by.
        points_PK: coordinates of P >= 2 points.
        points_per_pass: points whose parameters are in memory together.

    Returns:
        The quantities, (Q, P).
    """
    measured = []
    for chosen in spans(len(points_PK), points_per_pass):
        moves_PD = points_PK[chosen].to(directions_DK) @ directions_DK.T
        measured.append(measure(weights_D + moves_PD))
    return torch.cat(measured, dim=1)


def mean_gradient(
    losses: Losses,
    weights_MD: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    fixed_MS: Tensor | None = None,
    batch_size: int | None = None,
    models_per_pass: int | None = None,
    draws: Draws | None = None,
) -> Tensor:
    """Return the gradients of the mean losses of M models, (M, D).

    Args:
        losses: loss of each sample, (M, N), of weights, inputs and targets.
        weights_MD: where to take the gradients.
        inputs: shape (M or 1, N, ...).
        targets: shape (M or 1, N) or (M or 1, N, C).
        fixed_MS: what `losses` takes behind the weights.
        batch_size: samples per pass, bounding memory; the mean stays exact.
        models_per_pass: models per pass; None for all.
        draws: sources of random numbers, which `losses` then takes as `draw`.

    Returns:
        The gradients.
    """
    behind_MS = weights_MD[:, :0] if fixed_MS is None else fixed_MS
    models, count = len(weights_MD), inputs.shape[1]
    total_MD = torch.zeros_like(weights_MD)
    with full_precision():
        for part in passes(
            weights_MD,
            behind_MS,
            inputs,
            targets,
            batch_size=batch_size or count,
            models_per_pass=models_per_pass or models,
        ):
            drawing = {"draw": draws.at(part)} if draws else {}
            total_MD[part.models] += _summed_gradient(losses, part, drawing)
    return total_MD / count


def _summed_gradient(losses: Losses, part: Part, drawing: dict[str, Draw]) -> Tensor:
    # Not by functorch, which takes no functions of a user's without `setup_context`.
    with torch.enable_grad():
        at_MD = part.weights.detach().requires_grad_()
        losses_MN = losses(part.full(at_MD), part.inputs, part.targets, **drawing)
        (gradient_MD,) = torch.autograd.grad(
            losses_MN.sum(), at_MD, materialize_grads=True
        )
    return gradient_MD


def local_model(
    operator: BatchedOperator, gradient_MD: Tensor, directions_MDK: Tensor
) -> LocalModel:
    """Take the quadratic model along some directions, by one product for each.

    Args:
        operator: Hessians H of M models.
        gradient_MD: their gradients g.
        directions_MDK: directions d as columns, none of them zero.

    Returns:
        Its slopes and curvatures; w + sum_k t_k d_k has about the loss
        L(w) + t.slope + t.curvature t / 2.
    """
    images_MDK = operator @ directions_MDK
    curvature_MKK = directions_MDK.mT @ images_MDK
    curvature_MKK = (curvature_MKK + curvature_MKK.mT) / 2
    squares_MK = directions_MDK.square().sum(1)
    rayleigh_MK = curvature_MKK.diagonal(dim1=1, dim2=2) / squares_MK
    gaps_MDK = images_MDK - directions_MDK * rayleigh_MK.unsqueeze(1)
    return LocalModel(
        (gradient_MD.unsqueeze(1) @ directions_MDK).squeeze(1),
        curvature_MKK,
        rayleigh_MK,
        gaps_MDK.norm(dim=1) / squares_MK.sqrt(),
    )
