"""Newton's method within a Krylov space, for stacked models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.spectra import random_signs, spectrum
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> None:
    """Keep nothing."""


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, None]:
    """Take one step, w - lr (sum_i u_i u_i.g / (c |theta_i| + delta) + g' / delta).

    u_i and theta_i are Ritz vectors and values, g' what the vectors leave of g, c the
    eigenvalue_factor, and delta the damping, times lr if it follows it. With weight
    decay all is that of the loss plus weight_decay |w|^2 / 2.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, damping, damping_follows_lr (0 or 1), eigenvalue_factor and
            weight_decay, each (M, 1), and the choices num_steps, matrix and start.
        context: for the network, the batch and draws.

    Returns:
        The new weights, and no state.

    Reference:
        Granziol (2020), sections 4.3.1 and 6.4.1, LancGN and LanczosOPT, with the
        gradient and the curvature of the same batch. The basis is as there, what lies
        beyond it moved by g / delta.
    """
    rule, decay_M1 = hyper.rule, hyper["weight_decay"].double()
    gradient_MD = torch.addcmul(gradient_MD, hyper["weight_decay"], weights_MD)
    ritz = spectrum(
        gradient_MD if rule.start == "gradient" else random_signs(weights_MD, context),
        weights_MD,
        context,
        matrix=rule.matrix,
        num_steps=rule.num_steps,
        vectors=True,
    )
    assert ritz.vectors is not None
    lr_M1 = hyper["lr"].double()
    follows_M1 = torch.where(hyper["damping_follows_lr"] > 0, lr_M1, 1.0)
    damping_M1 = hyper["damping"].double() * follows_M1
    factor_M1 = hyper["eigenvalue_factor"].double()
    direction_MD = _solved(
        gradient_MD.double(),
        ritz.vectors,
        factor_M1 * (ritz.values + decay_M1).abs() + damping_M1,
        decay_M1 + damping_M1,
    )
    direction_MD.masked_fill_(~ritz.is_finite.unsqueeze(1), torch.nan)
    return (weights_MD.double() - lr_M1 * direction_MD).to(weights_MD), None


def _solved(
    gradient_MD: Tensor, vectors_MDK: Tensor, inside_MK: Tensor, outside_M1: Tensor
) -> Tensor:
    """Divide the part of g in the space by some numbers, the rest by another."""
    along_MK = (gradient_MD.unsqueeze(1) @ vectors_MDK).squeeze(1)
    rest_MD = gradient_MD - (vectors_MDK @ along_MK.unsqueeze(2)).squeeze(2)
    # Once more: what rounding leaves within the space is divided by little damping.
    again_MK = (rest_MD.unsqueeze(1) @ vectors_MDK).squeeze(1)
    rest_MD = rest_MD - (vectors_MDK @ again_MK.unsqueeze(2)).squeeze(2)
    within_MD = (vectors_MDK @ (along_MK / inside_MK).unsqueeze(2)).squeeze(2)
    return within_MD + rest_MD / outside_M1
