"""K-FAC: steps by Kronecker factors of the batch's Fisher matrix, for stacked models.

Beside the models M and parameters D, see the files here for other letters.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import NamedTuple, cast

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.kfac_blocks import (
    Held,
    averaged,
    batch_blocks,
    corrected,
    inverses,
    no_blocks,
    no_corrections,
    no_inverses,
    preconditioned,
)
from curvflow.tasks.rules.shared.kfac_networks import Networks
from curvflow.tasks.rules.shared.kfac_parts import (
    Parts,
    check_chain,
    check_network,
    parts_of,
)
from curvflow.tasks.rules.shared.kfac_quadratic import (
    Move,
    better,
    factors_of,
    has_model,
    quadratic,
    shortened,
)
from curvflow.tasks.training.state import leaves, with_leaves
from curvflow.tasks.training.step_context import Draw, Hyper, Step


class State(NamedTuple):
    """State of K-FAC; numbers are (M, 1).

    Attributes:
        blocks: of the Fisher matrix, averages over batches.
        inverses: of these.
        corrections: eigenvalues of each piece of a layer, for `ekfac`.
        velocity: the step before, (M, D); None without momentum.
        damping: of the quadratic model.
        preconditioner_damping: of the blocks.
        rate: factor of the preconditioned gradient in the step before.
        momentum: factor of the velocity in the step before.
        ratio: change of the loss over the predicted one, when last measured; 0 before.
        predicted: predicted change of the loss by the step before.
        rejected: steps of this epoch that were not taken.
        steps: of this epoch.
    """

    blocks: Held
    inverses: Held
    corrections: tuple[Tensor, ...]
    velocity: Tensor | None
    damping: Tensor
    preconditioner_damping: Tensor
    rate: Tensor
    momentum: Tensor
    ratio: Tensor
    predicted: Tensor
    rejected: Tensor
    steps: Tensor


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return no blocks yet, and the dampings to begin with.

    Raises:
        InputError: the loss has no likelihood that is known, or the model has a large
            tensor in no layer that is known.
    """
    if not problem.criterion.has_fisher:
        raise InputError(
            "rule: kfac cannot be combined with a loss other than cross_entropy, mse, "
            "sse, bce or poisson. Take one of them, or another rule."
        )
    fisher_type = hyper.rule.fisher_type
    if problem.tokens is not None and fisher_type in ("type-2", "recursive"):
        raise InputError(
            f"rule: fisher_type: {fisher_type} cannot be combined with labels of "
            "tokens. Take mc."
        )
    if fisher_type == "recursive":
        check_chain(problem.text)
    check_network(problem.network)
    parts, rule = _parts(problem, hyper), hyper.rule
    zeros_M1 = torch.zeros_like(weights_MD[:, :1])
    momentum = hyper.get("momentum")
    has_velocity = momentum is None or bool((momentum > 0).any())
    zeta = (
        "damping" if rule.preconditioner_damping is None else "preconditioner_damping"
    )
    return State(
        no_blocks(parts, weights_MD),
        no_inverses(parts, weights_MD, rule.inverse),
        no_corrections(parts, weights_MD) if rule.structure == "ekfac" else (),
        torch.zeros_like(weights_MD) if has_velocity else None,
        zeros_M1 + hyper["damping"],
        zeros_M1 + hyper[zeta],
        zeros_M1 + hyper["lr"],
        zeros_M1 if momentum is None else zeros_M1 + momentum,
        *[zeros_M1] * 4,
    )


def _parts(problem: Problem, hyper: Hyper) -> Parts:
    rule = hyper.rule
    return parts_of(
        problem.text, rule.kfac_approx, separate=rule.separate_weight_and_bias
    )


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
    if len(weights_MD) > 1:
        return _step(gradient_MD, state, weights_MD, hyper, context)
    # No pass is of a single model: see decision 0003.
    twice = with_leaves(state, (_twice(leaf) for leaf in leaves(state)))
    new_MD, stepped = _step(
        gradient_MD.repeat(2, 1),
        cast("State", twice),
        weights_MD.repeat(2, 1),
        hyper,
        _doubled(context),
    )
    once = (None if leaf is None else leaf[:1] for leaf in leaves(stepped))
    return new_MD[:1], cast("State", with_leaves(stepped, once))


def _twice(leaf: Tensor | None) -> Tensor | None:
    return None if leaf is None else torch.cat([leaf, leaf])


def _doubled(context: Step) -> Step:
    """Return the context of two copies of one model."""

    def both(draw: Draw) -> Draw:
        return lambda shape: draw(shape).expand(2, *shape)

    return replace(
        context,
        statistics=context.statistics.expand(2, -1),
        draw=both(context.draw),
        dropout=lambda _: both(context.dropout(slice(0, 1))),
    )


def _step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    networks = Networks(context, weights_MD)
    gradient_MD = torch.addcmul(gradient_MD, hyper["l2"], weights_MD)
    blocks = _blocks(state, weights_MD, hyper, context, networks)
    state = state._replace(blocks=blocks)
    if hyper.rule.inverse == "exact":
        state = _turned(state, weights_MD, hyper, context, networks)
    moves = _moves(networks, gradient_MD, state, weights_MD, hyper, context)
    move = reduce(better, moves)
    new_MD = weights_MD + move.change
    zeros_M1 = torch.zeros_like(state.steps)
    begun = (zeros_M1, zeros_M1) if context.begins_epoch else state[-2:]
    state = state._replace(
        inverses=move.inverses,
        velocity=None if state.velocity is None else move.change,
        preconditioner_damping=move.damping.to(weights_MD),
        rate=move.rate.to(weights_MD),
        momentum=move.momentum.to(weights_MD),
        predicted=move.predicted.nan_to_num(nan=0.0).to(weights_MD),
        rejected=begun[0],
        steps=begun[1] + 1,
    )
    is_due = _is_due(hyper.rule.damping_adaptation_interval, context)
    if not (is_due or hyper.rule.reject):
        return new_MD, state
    return _judged(networks, move, state, (weights_MD, new_MD), hyper, is_due=is_due)


def _is_due(interval: int | None, context: Step) -> bool:
    """Return whether the step's number, from 1, is a multiple of the interval."""
    return bool(interval) and (context.count + 1) % (interval or 1) == 0


def _blocks(
    state: State, weights_MD: Tensor, hyper: Hyper, context: Step, networks: Networks
) -> Held:
    """Return the blocks with the batch averaged in, if it is to be."""
    steps = hyper.rule.factor_update_steps
    if context.count % steps or not _are_used(hyper, context):
        return state.blocks
    parts = _parts(context.problem, hyper)
    now = batch_blocks(networks, weights_MD, parts, hyper)
    return averaged(state.blocks, now, _share(hyper, context))


def _share(hyper: Hyper, context: Step) -> Tensor:
    """Return the weight of former batches in averages, (M, 1)."""
    # As Martens and Grosse (2015), section 5: the first batches weigh alike.
    before = 1 - 1 / (1 + context.count // hyper.rule.factor_update_steps)
    return hyper["factor_decay"].clamp(max=before)


def _turned(
    state: State, weights_MD: Tensor, hyper: Hyper, context: Step, networks: Networks
) -> State:
    """Return the state with eigenvectors and corrected eigenvalues, if they are due."""
    rule, parts = hyper.rule, _parts(context.problem, hyper)
    is_new = context.count % rule.inv_update_steps == 0
    if is_new:
        undamped_M1 = torch.zeros_like(hyper["l2"])
        held = inverses(state.blocks, parts, hyper, undamped_M1)
        state = state._replace(inverses=held)
    is_taken = context.count % rule.factor_update_steps == 0
    if rule.structure == "kron" or not (is_new or is_taken):
        return state
    now = corrected(networks, weights_MD, parts, hyper, state.inverses)
    if not is_new:  # along the eigenvectors that those before are along
        (now,) = averaged((state.corrections,), (now,), _share(hyper, context))
    return state._replace(corrections=now)


def _are_used(hyper: Hyper, context: Step) -> bool:
    """Return whether blocks of this step are averaged or inverted."""
    is_inverted = context.count % hyper.rule.inv_update_steps == 0
    parts = _parts(context.problem, hyper)
    is_searched = _is_due(hyper.rule.preconditioner_adaptation_interval, context)
    is_averaged = bool(hyper["factor_decay"].any())
    is_factored = hyper.rule.inverse == "factored"
    return (
        is_inverted or (is_searched and is_factored) or is_averaged or bool(parts.rest)
    )


def _moves(
    networks: Networks,
    gradient_MD: Tensor,
    state: State,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> list[Move]:
    """Return the step, or one with each damping of the blocks that is tried."""
    rule, parts = hyper.rule, _parts(context.problem, hyper)
    follows = rule.preconditioner_damping is None
    zeta_M1 = state.damping if follows else state.preconditioner_damping
    is_searched = _is_due(rule.preconditioner_adaptation_interval, context)
    tried = [zeta_M1]
    if is_searched:
        decay_M1 = hyper["preconditioner_adaptation_decay"]
        tried += [
            _bounded(one, hyper) for one in (zeta_M1 * decay_M1, zeta_M1 / decay_M1)
        ]
    is_due = is_searched or context.count % rule.inv_update_steps == 0
    moves: list[Move] = []
    for zeta_M1 in tried:
        damping_M1, held = hyper["l2"] + zeta_M1, state.inverses
        if is_due and rule.inverse == "factored":
            held = inverses(state.blocks, parts, hyper, damping_M1)
        direction_MD = -preconditioned(
            gradient_MD, held, state.blocks, state.corrections, parts, damping_M1
        )
        found = _move(networks, gradient_MD, direction_MD, state, weights_MD, hyper)
        moves.append(found._replace(damping=zeta_M1, inverses=held))
    return moves


def _bounded(damping_M1: Tensor, hyper: Hyper) -> Tensor:
    return torch.clamp(damping_M1, hyper["min_damping"], hyper["max_damping"])


def _move(
    networks: Networks,
    gradient_MD: Tensor,
    direction_MD: Tensor,
    state: State,
    weights_MD: Tensor,
    hyper: Hyper,
) -> Move:
    """Return the step along a direction, and the step before."""
    directions = [direction_MD]
    if state.velocity is not None:
        directions.append(state.velocity)
    unknown_M1 = torch.full_like(hyper["lr"], torch.nan).double()
    unknown_M1 = unknown_M1.expand(len(weights_MD), 1)
    predicted_M1 = loss_M1 = unknown_M1
    if has_model(hyper.rule):
        model = quadratic(
            networks,
            weights_MD,
            gradient_MD,
            directions,
            hyper["l2"] + state.damping,
        )
        factors_MK = factors_of(model, hyper)
        if hyper.rule.kl_clip is not None:
            most_M1 = hyper["kl_clip"] * networks.scale
            factors_MK = shortened(model, factors_MK, most_M1)
        predicted_M1, loss_M1 = model.at(factors_MK), model.loss
    else:
        given = [hyper["lr"], hyper["momentum"]][: len(directions)]
        factors_MK = torch.cat(given, dim=1).double().expand(len(weights_MD), -1)
    scaled = [
        factor.unsqueeze(1).to(weights_MD) * one
        for factor, one in zip(factors_MK.unbind(1), directions, strict=True)
    ]
    momentum_M1 = factors_MK[:, 1:] if len(directions) > 1 else 0 * factors_MK[:, :1]
    return Move(
        scaled[0] if len(scaled) == 1 else scaled[0] + scaled[1],
        factors_MK[:, :1],
        momentum_M1,
        predicted_M1,
        loss_M1,
        unknown_M1,
        (),
    )


def _judged(
    networks: Networks,
    move: Move,
    state: State,
    weights: tuple[Tensor, Tensor],
    hyper: Hyper,
    *,
    is_due: bool,
) -> tuple[Tensor, State]:
    """Return the weights, and the state with the damping by what the step changed."""
    changed_M1 = _changed(networks, move, weights, hyper)
    damping_M1 = state.damping
    if is_due:
        ratio_M1 = (changed_M1 / move.predicted).to(damping_M1)
        damping_M1 = _adapted(damping_M1, ratio_M1, hyper)
        state = state._replace(ratio=ratio_M1)
    if not hyper.rule.reject:
        return weights[1], state._replace(damping=damping_M1)
    is_worse_M1 = changed_M1 > 0
    state = _taken_back(state, state._replace(damping=damping_M1), is_worse_M1, hyper)
    return torch.where(is_worse_M1, *weights), state


def _changed(
    networks: Networks, move: Move, weights: tuple[Tensor, Tensor], hyper: Hyper
) -> Tensor:
    """Return the change of the loss with its penalty, (M, 1); of no number infinity."""
    before_M1 = move.loss
    if not has_model(hyper.rule):
        before_M1 = networks.losses(weights[0]).unsqueeze(1)
    before, after = (one.double().square().sum(1, keepdim=True) for one in weights)
    changed_M1 = networks.losses(weights[1]).unsqueeze(1) - before_M1
    changed_M1 = changed_M1 + hyper["l2"].double() * (after - before) / 2
    return changed_M1.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _adapted(damping_M1: Tensor, ratio_M1: Tensor, hyper: Hyper) -> Tensor:
    """Return the damping after a look at the reduction ratio."""
    decay_M1 = hyper["damping_adaptation_decay"]
    is_good_M1 = ratio_M1 > hyper["damping_upper_threshold"]
    is_bad_M1 = ratio_M1 < hyper["damping_lower_threshold"]
    factor_M1 = torch.where(is_bad_M1, 1 / decay_M1, 1.0)
    factor_M1 = torch.where(is_good_M1, decay_M1, factor_M1)
    return _bounded(damping_M1 * factor_M1, hyper)


def _taken_back(
    before: State, after: State, is_worse_M1: Tensor, hyper: Hyper
) -> State:
    """Return the state after steps of which some are taken back."""

    def raised(name: str, decay: str) -> Tensor:
        least_M1 = getattr(before, name).clamp(min=hyper["min_damping"])
        higher_M1 = _bounded(least_M1 / hyper[decay], hyper)
        return torch.where(is_worse_M1, higher_M1, getattr(after, name))

    velocity = after.velocity
    return after._replace(
        velocity=None if velocity is None else velocity.where(~is_worse_M1, 0.0),
        damping=raised("damping", "damping_adaptation_decay"),
        preconditioner_damping=raised(
            "preconditioner_damping", "preconditioner_adaptation_decay"
        ),
        rejected=after.rejected + is_worse_M1,
    )


def rates(state: State, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum of the step before, (M, 1) each."""
    rate_M1 = hyper["lr"] if hyper.rule.step == "lr" else state.rate
    return rate_M1.expand_as(state.rate), state.momentum


def told(state: State, hyper: Hyper) -> dict[str, Tensor]:
    """Return the numbers that are recorded as curves, (M, 1) each, by name."""
    zeta = state.preconditioner_damping
    if hyper.rule.preconditioner_damping is None:
        zeta = state.damping
    return {
        "damping": state.damping,
        "preconditioner_damping": zeta,
        "reduction_ratio": _known(state.ratio),
        "predicted_change": _known(state.predicted),
        "rejected_share": state.rejected / state.steps,
    }


def _known(number_M1: Tensor) -> Tensor:
    """Return NaN for a number that has not been measured yet, which is 0."""
    return torch.where(number_M1 == 0, torch.nan, number_M1)
