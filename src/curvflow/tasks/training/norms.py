"""Norms of the parameters of a batch of models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.problems import Problem


@torch.no_grad()
def norms(problem: Problem, weights_MW: Tensor) -> dict[str, Tensor]:
    """Measure the parameters of models.

    Args:
        problem: their network.
        weights_MW: parameters and statistics, (M, D + S).

    Returns:
        Per name (M,): `norm_l2` and `norm_l1` of all parameters, `norm_max_unit`, the
        largest norm of the weights into one unit, `sum_of_norms`, the sum of the
        tensors' Frobenius norms, and `path_norm` for p = 2, NaN where undefined.

    Reference:
        Neyshabur, Tomioka and Srebro (2015), arXiv:1503.00036, for group norms.
    """
    network = problem.network
    weights_MD, _ = network.split(weights_MW)
    tensors = network.layout.unflatten(weights_MD)
    units = [t.flatten(2).norm(dim=2).amax(1) for t in tensors if t.ndim > 2]
    nothing_M = torch.full_like(weights_MD[:, 0], torch.nan)
    sums_M = nothing_M
    if network.has_paths:
        sums_M = network.path_sums(
            weights_MD.double().square(), problem.input_shape, 2.0
        )
    return {
        "norm_l2": weights_MD.norm(dim=1),
        "norm_l1": weights_MD.abs().sum(1),
        "norm_max_unit": torch.stack(units).amax(0) if units else nothing_M,
        "sum_of_norms": network.layout.norms(weights_MD).sum(1),
        "path_norm": sums_M.sqrt(),
    }
