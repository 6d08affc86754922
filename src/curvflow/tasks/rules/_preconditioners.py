"""Preconditioners that several rules have."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.steps import Hyper, Preconditioner


def identity(
    weights_MD: Tensor, rate_M1: Tensor, momentum_M1: Tensor, *, is_nesterov: Tensor
) -> Preconditioner:
    """Return P = I with the bound of a velocity v <- rho v + g.

    Args:
        weights_MD: of the shape of P.
        rate_M1: learning rate.
        momentum_M1: rho.
        is_nesterov: whether steps are along g + rho v.

    Returns:
        The preconditioner; its bound is 2 (1 + rho), with Nesterov divided by
        1 + 2 rho.

    Reference:
        Cohen et al. (2021), arXiv:2103.00065, appendix B.
    """
    bound_M1 = 2 * (1 + momentum_M1)
    ahead_M1 = bound_M1 / (1 + 2 * momentum_M1)
    return Preconditioner(
        torch.ones_like(weights_MD),
        rate_M1,
        torch.where(is_nesterov, ahead_M1, bound_M1),
    )


def of_mean(scale_MD: Tensor, fading_M1: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P of steps along a mean of gradients that is corrected for its bias.

    Args:
        scale_MD: what the mean is divided by.
        fading_M1: beta1^t after t steps.
        hyper: lr and beta1, (M, 1) each.

    Returns:
        The preconditioner (1 - beta1^t) scale, and the bound of a running mean,
        2 (1 + beta1) / (1 - beta1).

    Reference:
        Cohen et al. (2022), arXiv:2207.14484, section 2.
    """
    beta1 = hyper["beta1"]
    return Preconditioner(
        (1 - fading_M1) * scale_MD, hyper["lr"], 2 * (1 + beta1) / (1 - beta1)
    )
