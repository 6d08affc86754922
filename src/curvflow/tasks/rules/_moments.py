"""Running means of the gradient and of its square, and steps along them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.steps import Hyper


class Moments(NamedTuple):
    """What Adam and its kin keep.

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
