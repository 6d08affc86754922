"""Directions compared with that of the whole damped Gauss-Newton matrix.

Letters: M models, D parameters, K directions, T dampings, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators.base import BatchedOperator, product


@dataclass(frozen=True)
class Alignment:
    """Cosines of directions with the last of them, and the decrease along each.

    Attributes:
        cosine: with the last direction, (M, K, T).
        layer_cosine: the same of the parts of each layer, (M, L, K, T).
        step: -g.d / d.(A + damping) d, the best step along each, (M, K, T).
        decrease: of the quadratic model at that step, (M, K, T).
        share: of the decrease along the last, (M, K, T).
    """

    cosine: Tensor
    layer_cosine: Tensor
    step: Tensor
    decrease: Tensor
    share: Tensor


def alignment(
    operator: BatchedOperator,
    gradient_MD: Tensor,
    directions_MDKT: Tensor,
    damping_T: Tensor,
    layers: Sequence[Tensor],
) -> Alignment:
    """Compare directions in the model q(d) = g.d + d.(A + damping) d / 2.

    Args:
        operator: A, positive semidefinite.
        gradient_MD: g.
        directions_MDKT: those compared; the last, -(A + damping)^-1 g, with which.
        damping_T: added to the diagonal.
        layers: places of the parameters of each layer.

    Returns:
        The numbers; NaN of directions that are not finite, or zero.

    Reference:
        Botev (2020), section 4.4 and Figs. 4.2, 4.3, whose d points uphill, so that its
        step is negative.
    """
    size = directions_MDKT.shape[1:]
    is_finite = torch.isfinite(directions_MDKT).all(1, keepdim=True)
    safe = torch.where(is_finite, directions_MDKT, 0.0)
    images = torch.unflatten(product(operator, safe.flatten(2)), 2, size[1:])
    slope = (safe * gradient_MD[:, :, None, None]).sum(1)
    squared = safe.square().sum(1)
    curved = (safe * images).sum(1) + damping_T * squared
    decrease = slope.square() / (2 * curved)
    parts = [_cosine(safe[:, places]) for places in layers]
    return Alignment(
        _cosine(safe),
        torch.stack(parts, dim=1),
        -slope / curved,
        decrease,
        decrease / decrease[:, -1:],
    )


def _cosine(directions_MDKT: Tensor) -> Tensor:
    last = directions_MDKT[:, :, -1:]
    lengths = directions_MDKT.norm(dim=1)
    inner: Tensor = (directions_MDKT * last).sum(1)
    cosine: Tensor = inner / (lengths * lengths[:, -1:])
    return cosine.clamp(-1, 1)
