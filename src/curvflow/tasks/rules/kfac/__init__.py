"""K-FAC: steps by Kronecker factors of the batch's Fisher matrix, for stacked models.

For letters other than M models and D parameters see `curvflow.tasks.rules.shared`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.rules.kfac import Kfac
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.kronecker.flat_blocks import flattened
from curvflow.tasks.rules.shared.kfac_blocks import as_eigenpairs
from curvflow.tasks.rules.shared.kfac_control import (
    Control,
    among_others,
    begun,
    bounded,
    is_due,
    move_along,
    rates_of,
    recorded_of,
    taken,
    zeta_of,
)
from curvflow.tasks.rules.shared.kfac_factors import (
    Factors,
    check_factors,
    check_likelihood,
    multiplied,
    no_factors,
    rule_parts,
    with_batch,
    with_damping,
)
from curvflow.tasks.rules.shared.kfac_networks import Networks
from curvflow.tasks.rules.shared.kfac_quadratic import Move, better
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


class State(NamedTuple):
    """State of K-FAC.

    Attributes:
        factors: blocks of the Fisher matrix, and their inverses.
        control: dampings, and the state of the step before.
    """

    factors: Factors
    control: Control


def check(rule: Kfac, problem: Problem) -> None:
    """Refuse a loss without a likelihood, or a model with layers that are not known."""
    check_factors(rule, problem)


def check_loss(rule: Kfac, loss: AnyLoss) -> None:
    """Refuse a loss without a likelihood."""
    check_likelihood(rule, loss)


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return no blocks yet, and the dampings to begin with."""
    check(hyper.rule, problem)
    return State(no_factors(weights_MD, hyper, problem), begun(weights_MD, hyper))


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: w <- w + a d + m v, d = -(P + l2 + zeta)^-1 (g + l2 w).

    P are Kronecker factors of the batch's Fisher matrix and v is the step before. The
    rate a, and the momentum m where it is not given, minimise the quadratic model of
    the batch with the damping tau, whose Gauss-Newton matrix is exact.

    Args:
        gradient_MD: gradients g of the loss.
        state: blocks, their inverses, dampings and the step before.
        weights_MD: weights w.
        hyper: lr, l2, the dampings with their bounds and factors, factor_decay, maybe
            momentum, pi and kl_clip, each (M, 1), and the other choices.
        context: for the network, the batch and draws.

    Returns:
        The new weights and state.

    Reference:
        Martens and Grosse (2015), arXiv:1503.05671; Botev (2020), section 4.4, with
        its errata: the ratio stands for the damping in the comparison, and candidates
        are multiples of zeta.
    """
    return among_others(_step, gradient_MD, state, weights_MD, hyper, context)


def _step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    networks = Networks(context, weights_MD, hyper.rule.psd)
    gradient_MD = gradient_MD.addcmul(hyper["l2"], weights_MD)
    factors = with_batch(state.factors, networks, weights_MD, hyper, context)
    state = State(factors, state.control)
    moves = _moves(networks, gradient_MD, state, weights_MD, hyper, context)
    move = reduce(better, moves)
    new_MD, control = taken(move, networks, state.control, weights_MD, hyper, context)
    return new_MD, State(factors._replace(inverses=move.inverses), control)


def _moves(
    networks: Networks,
    gradient_MD: Tensor,
    state: State,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> list[Move]:
    """Return the step, or one with each damping of the blocks that is tried."""
    control = state.control
    zeta_M1 = zeta_of(control, hyper)
    tried = [zeta_M1]
    is_searched = is_due(hyper.rule.preconditioner_adaptation_interval, context)
    if is_searched:
        decay_M1 = hyper["preconditioner_adaptation_decay"]
        tried += [
            bounded(zeta, hyper) for zeta in (zeta_M1 * decay_M1, zeta_M1 / decay_M1)
        ]
    moves: list[Move] = []
    for zeta_M1 in tried:
        damping_M1 = hyper["l2"] + zeta_M1
        factors = with_damping(
            state.factors, hyper, context, damping_M1, is_searched=is_searched
        )
        direction_MD = multiplied(gradient_MD, factors, hyper, context, damping_M1)
        direction_MD.neg_()
        move = move_along(
            direction_MD, networks, gradient_MD, control, weights_MD, hyper
        )
        moves.append(move._replace(damping=zeta_M1, inverses=factors.inverses))
    return moves


def preconditioner(
    state: State, weights_MD: Tensor, hyper: Hyper, problem: Problem
) -> Preconditioner:
    """Return P as the state has it, the rate of the last step, and 2 (1 + momentum).

    Args:
        state: of the rule.
        weights_MD: of all models.
        hyper: with l2, and the choices of factors.
        problem: network and loss.

    Returns:
        P by rows of `flattened`, whose eigenvalues are NaN before the first step.
    """
    factors, control = state.factors, state.control
    blocks = as_eigenpairs(
        factors.inverses,
        factors.blocks,
        factors.corrections,
        rule_parts(hyper.rule, problem),
        hyper["l2"] + zeta_of(control, hyper),
    )
    is_begun_M111 = (control.steps > 0)[:, :, None, None]
    known = [
        replace(block, values=block.values.where(is_begun_M111, torch.nan))
        for block in blocks
    ]
    rate_M1, momentum_M1 = rates(state, hyper)
    return Preconditioner(flattened(known), rate_M1, 2 * (1 + momentum_M1))


def rates(state: State, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum of the step before, (M, 1) each."""
    return rates_of(state.control, hyper)


def recorded(state: State, hyper: Hyper) -> dict[str, Tensor]:
    """Return the numbers that are recorded as curves, (M, 1) each, by name."""
    return recorded_of(state.control, hyper)
