"""Running moments of gradients, and preconditioners that several rules share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.training.step_context import Hyper, Preconditioner


class Moments(NamedTuple):
    """State of Adam and the rules made from it.

    Attributes:
        mean: of the gradient, (M, D).
        square: mean of its square, (M, D).
        largest: largest mean square so far, (M, D); None where no model needs it.
        fading1: beta1^t of each model, (M, 1).
        fading2: beta2^t of each model, (M, 1).
    """

    mean: Tensor
    square: Tensor
    largest: Tensor | None
    fading1: Tensor
    fading2: Tensor


def begin(weights_MD: Tensor, hyper: Hyper) -> Moments:
    """Return the means before the first step."""
    zeros = torch.zeros_like(weights_MD)
    ones = torch.ones_like(hyper["beta1"])
    return Moments(zeros, zeros, zeros if hyper["amsgrad"].any() else None, ones, ones)


def after(gradient_MD: Tensor, moments: Moments, hyper: Hyper) -> Moments:
    """Return the means with one more gradient in them."""
    beta1, beta2 = hyper["beta1"], hyper["beta2"]
    square_MD = beta2 * moments.square + (1 - beta2) * gradient_MD.square()
    largest = moments.largest
    return Moments(
        beta1 * moments.mean + (1 - beta1) * gradient_MD,
        square_MD,
        None if largest is None else torch.maximum(largest, square_MD),
        moments.fading1 * beta1,
        moments.fading2 * beta2,
    )


def corrected(moments: Moments, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return m and v, or its largest value with amsgrad, corrected for their bias."""
    square_MD = moments.square
    if moments.largest is not None:
        square_MD = torch.where(hyper["amsgrad"] > 0, moments.largest, square_MD)
    return moments.mean / (1 - moments.fading1), square_MD / (1 - moments.fading2)


def scale(moments: Moments, hyper: Hyper) -> Tensor:
    """Return sqrt(v) + eps, v corrected for its bias."""
    _, square_MD = corrected(moments, hyper)
    return square_MD.sqrt() + hyper["eps"]


def partial_scale(moments: Moments, hyper: Hyper) -> Tensor:
    """Return v^p, v corrected for its bias, with eps where `eps_at` says."""
    _, square_MD = corrected(moments, hyper)
    if hyper.rule.eps_at == "inside":
        return (square_MD + hyper["eps"]).pow(hyper["p"])
    return (square_MD.sqrt() + hyper["eps"]).pow(2 * hyper["p"])


def descended(
    weights_MD: Tensor, moments: Moments, hyper: Hyper, decay_M1: Tensor
) -> Tensor:
    """Return w - lr decay w - lr m / (sqrt(v) + eps).

    Args:
        weights_MD: weights w.
        moments: with this step's gradient in them.
        hyper: lr, eps and amsgrad, each (M, 1).
        decay_M1: decoupled decay.

    Returns:
        The new weights.
    """
    mean_MD, _ = corrected(moments, hyper)
    update_MD = mean_MD / scale(moments, hyper)
    return (1 - hyper["lr"] * decay_M1) * weights_MD - hyper["lr"] * update_MD


def partly_descended(
    weights_MD: Tensor, moments: Moments, hyper: Hyper, decay_M1: Tensor
) -> Tensor:
    """Return w - lr decay w - lr m / v^p, with eps where `hyper.rule.eps_at` says.

    Args:
        weights_MD: weights w.
        moments: with this step's gradient in them.
        hyper: lr, eps, p and amsgrad, each (M, 1).
        decay_M1: decoupled decay.

    Returns:
        The new weights.
    """
    mean_MD, _ = corrected(moments, hyper)
    update_MD = mean_MD / partial_scale(moments, hyper)
    return (1 - hyper["lr"] * decay_M1) * weights_MD - hyper["lr"] * update_MD


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
