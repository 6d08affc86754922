"""Length, momentum, dampings and rejection of steps by the quadratic model.

A rule finds a direction; these functions go along it, and look at the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from curvflow.tasks.rules.shared.kfac_networks import Networks
from curvflow.tasks.rules.shared.kfac_quadratic import (
    Move,
    Quadratic,
    factors_of,
    quadratic,
    shortened,
)
from curvflow.tasks.training.state import RuleState, leaves, with_leaves
from curvflow.tasks.training.step_context import Draw, Hyper, Step

State = TypeVar("State", bound=RuleState)
Stepping = Callable[[Tensor, State, Tensor, Hyper, Step], tuple[Tensor, State]]


class Control(NamedTuple):
    """Dampings, and the state of the step before; numbers are (M, 1).

    Attributes:
        velocity: the step before, (M, D); None without momentum.
        damping: of the quadratic model.
        preconditioner_damping: of the blocks.
        rate: factor of the direction in the step before.
        momentum: factor of the velocity in the step before.
        ratio: change of the loss over the predicted one, when last measured; 0 before.
        predicted: predicted change of the loss by the step before.
        rejected: steps of this epoch that were not taken.
        steps: of this epoch.
    """

    velocity: Tensor | None
    damping: Tensor
    preconditioner_damping: Tensor
    rate: Tensor
    momentum: Tensor
    ratio: Tensor
    predicted: Tensor
    rejected: Tensor
    steps: Tensor


def begun(weights_MD: Tensor, hyper: Hyper) -> Control:
    """Return the dampings to begin with, before the first step."""
    zeros_M1 = torch.zeros_like(weights_MD[:, :1])
    momentum = hyper.get("momentum")
    has_velocity = momentum is None or bool((momentum > 0).any())
    follows = hyper.rule.preconditioner_damping is None
    zeta = "damping" if follows else "preconditioner_damping"
    return Control(
        torch.zeros_like(weights_MD) if has_velocity else None,
        zeros_M1 + hyper["damping"],
        zeros_M1 + hyper[zeta],
        zeros_M1 + hyper["lr"],
        zeros_M1 if momentum is None else zeros_M1 + momentum,
        *[zeros_M1] * 4,
    )


def among_others(
    stepping: Stepping[State],
    gradient_MD: Tensor,
    state: State,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, State]:
    """Return a step, of a single model as one of two: see decision 0003.

    Args:
        stepping: the step of two models or more.
        gradient_MD: as rules have it.
        state: of the rule.
        weights_MD: as rules have it.
        hyper: as rules have it.
        context: as rules have it.

    Returns:
        The new weights and state.
    """
    if len(weights_MD) > 1:
        return stepping(gradient_MD, state, weights_MD, hyper, context)
    twice = with_leaves(state, (_twice(leaf) for leaf in leaves(state)))
    new_MD, stepped = stepping(
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


def is_due(interval: int | None, context: Step) -> bool:
    """Return whether the step's number, from 1, is a multiple of the interval."""
    return bool(interval) and (context.count + 1) % (interval or 1) == 0


def bounded(damping_M1: Tensor, hyper: Hyper) -> Tensor:
    """Return a damping within its bounds."""
    return torch.clamp(damping_M1, hyper["min_damping"], hyper["max_damping"])


def zeta_of(control: Control, hyper: Hyper) -> Tensor:
    """Return the damping of the blocks, (M, 1)."""
    follows = hyper.rule.preconditioner_damping is None
    return control.damping if follows else control.preconditioner_damping


def move_along(
    direction_MD: Tensor,
    networks: Networks,
    gradient_MD: Tensor,
    control: Control,
    weights_MD: Tensor,
    hyper: Hyper,
) -> Move:
    """Return the step along a direction, and the step before.

    Args:
        direction_MD: that a rule has found.
        networks: of the step.
        gradient_MD: with that of the penalty.
        control: dampings and the step before.
        weights_MD: where the step begins.
        hyper: with lr, l2 and the choices of the step.
    """
    directions = [direction_MD]
    if control.velocity is not None:
        directions.append(control.velocity)
    unknown_M1 = torch.full_like(hyper["lr"], torch.nan).double()
    unknown_M1 = unknown_M1.expand(len(weights_MD), 1)
    predicted_M1 = loss_M1 = unknown_M1
    if hyper.rule.has_model:
        damping_M1 = hyper["l2"] + control.damping
        model = quadratic(networks, weights_MD, gradient_MD, directions, damping_M1)
        factors_MK = _factors(model, networks, hyper)
        predicted_M1, loss_M1 = model.at(factors_MK), model.loss
    else:
        given = [hyper["lr"], hyper["momentum"]][: len(directions)]
        factors_MK = torch.cat(given, dim=1).double().expand(len(weights_MD), -1)
    scaled = [
        factor.unsqueeze(1).to(weights_MD) * along_MD
        for factor, along_MD in zip(factors_MK.unbind(1), directions, strict=True)
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


def _factors(model: Quadratic, networks: Networks, hyper: Hyper) -> Tensor:
    """Return the factors of directions, (M, K), shortened if the rule bounds them."""
    factors_MK = factors_of(model, hyper)
    if hyper.rule.kl_clip is None:
        return factors_MK
    return shortened(model, factors_MK, hyper["kl_clip"] * networks.scale)


def taken(
    move: Move,
    networks: Networks,
    control: Control,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, Control]:
    """Take a step, or leave it, and adapt the damping, if that is due.

    Args:
        move: the step.
        networks: of the step.
        control: before it.
        weights_MD: where it begins.
        hyper: with l2, the dampings' bounds and factors, and choices.
        context: of the step.

    Returns:
        The new weights, and the state of the step.
    """
    new_MD = weights_MD + move.change
    zeros_M1 = torch.zeros_like(control.steps)
    before = (zeros_M1, zeros_M1) if context.begins_epoch else control[-2:]
    control = control._replace(
        velocity=None if control.velocity is None else move.change,
        preconditioner_damping=move.damping.to(weights_MD),
        rate=move.rate.to(weights_MD),
        momentum=move.momentum.to(weights_MD),
        predicted=move.predicted.nan_to_num(nan=0.0).to(weights_MD),
        rejected=before[0],
        steps=before[1] + 1,
    )
    is_adapted = is_due(hyper.rule.damping_adaptation_interval, context)
    if not (is_adapted or hyper.rule.reject):
        return new_MD, control
    changed_M1 = _changed(networks, move, (weights_MD, new_MD), hyper)
    damping_M1 = control.damping
    if is_adapted:
        ratio_M1 = (changed_M1 / move.predicted).to(damping_M1)
        damping_M1 = _adapted(damping_M1, ratio_M1, hyper)
        control = control._replace(ratio=ratio_M1)
    if not hyper.rule.reject:
        return new_MD, control._replace(damping=damping_M1)
    is_worse_M1 = changed_M1 > 0
    after = control._replace(damping=damping_M1)
    control = _taken_back(control, after, is_worse_M1, hyper)
    return torch.where(is_worse_M1, weights_MD, new_MD), control


def _changed(
    networks: Networks, move: Move, weights: tuple[Tensor, Tensor], hyper: Hyper
) -> Tensor:
    """Return the change of the loss with its penalty, (M, 1); of no number infinity."""
    before_M1 = move.loss
    if not hyper.rule.has_model:
        before_M1 = networks.losses(weights[0]).unsqueeze(1)
    before, after = (squares(weights_MD, hyper["l2"]) for weights_MD in weights)
    changed_M1 = networks.losses(weights[1]).unsqueeze(1) - before_M1
    changed_M1 = changed_M1 + hyper["l2"].double() * (after - before) / 2
    return changed_M1.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


def squares(weights_MD: Tensor, l2_M1: Tensor) -> Tensor:
    """Return sums of squares, in double precision.

    Args:
        weights_MD: of all models.
        l2_M1: penalties that they are multiplied by.

    Returns:
        Sums (M, 1); where all penalties are 0, numbers that are finite where the
        weights are, for no more is asked of them.
    """
    if l2_M1.any():
        return weights_MD.double().square().sum(1, keepdim=True)
    return weights_MD.abs().amax(1, keepdim=True).double()


def _adapted(damping_M1: Tensor, ratio_M1: Tensor, hyper: Hyper) -> Tensor:
    """Return the damping after a look at the reduction ratio."""
    decay_M1 = hyper["damping_adaptation_decay"]
    is_good_M1 = ratio_M1 > hyper["damping_upper_threshold"]
    is_bad_M1 = ratio_M1 < hyper["damping_lower_threshold"]
    factor_M1 = torch.where(is_bad_M1, 1 / decay_M1, 1.0)
    factor_M1 = torch.where(is_good_M1, decay_M1, factor_M1)
    return bounded(damping_M1 * factor_M1, hyper)


def _taken_back(
    before: Control, after: Control, is_worse_M1: Tensor, hyper: Hyper
) -> Control:
    """Return the state after steps of which some are taken back."""
    decay_M1 = hyper["damping_adaptation_decay"]

    def raised(name: str, decay_M1: Tensor) -> Tensor:
        least_M1 = getattr(before, name).clamp(min=hyper["min_damping"])
        higher_M1 = bounded(least_M1 / decay_M1, hyper)
        return torch.where(is_worse_M1, higher_M1, getattr(after, name))

    velocity = after.velocity
    return after._replace(
        velocity=None if velocity is None else velocity.where(~is_worse_M1, 0.0),
        damping=raised("damping", decay_M1),
        preconditioner_damping=raised(
            "preconditioner_damping",
            hyper.get("preconditioner_adaptation_decay", decay_M1),
        ),
        rejected=after.rejected + is_worse_M1,
    )


def rates_of(control: Control, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum of the step before, (M, 1) each."""
    rate_M1 = hyper["lr"] if hyper.rule.step == "lr" else control.rate
    return rate_M1.expand_as(control.rate), control.momentum


def recorded_of(control: Control, hyper: Hyper) -> dict[str, Tensor]:
    """Return the numbers that are recorded as curves, (M, 1) each, by name."""
    return {
        "damping": control.damping,
        "preconditioner_damping": zeta_of(control, hyper),
        "reduction_ratio": _known(control.ratio),
        "predicted_change": _known(control.predicted),
        "rejected_share": control.rejected / control.steps,
    }


def _known(number_M1: Tensor) -> Tensor:
    """Return NaN for a number that has not been measured yet, which is 0."""
    return torch.where(number_M1 == 0, torch.nan, number_M1)
