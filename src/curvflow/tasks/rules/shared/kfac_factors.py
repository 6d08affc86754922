"""Kronecker factors as a rule keeps them: averages over batches, and their inverses."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.rules.kfac._quadratic import QuadraticRule
from curvflow.tasks.networks.losses import law_of_loss
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.derivatives.output_laws import OutputLaw
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
from curvflow.tasks.rules.shared.kfac_networks import Networks, labels_of
from curvflow.tasks.rules.shared.kfac_parts import (
    Parts,
    check_chain,
    check_network,
    parts_of,
)
from curvflow.tasks.training.step_context import Hyper, Step


class Factors(NamedTuple):
    """Factors of a rule; all are empty of one without.

    Attributes:
        blocks: of the Fisher matrix, averages over batches.
        inverses: of these.
        corrections: eigenvalues of each piece of a layer, for `ekfac`.
    """

    blocks: Held = ()
    inverses: Held = ()
    corrections: tuple[Tensor, ...] = ()


def check_factors(rule: QuadraticRule, problem: Problem) -> None:
    """Refuse a problem whose factors cannot be taken as a rule wants them.

    Args:
        rule: its specification.
        problem: network and loss.

    Raises:
        InputError: the loss has no likelihood that is known, or needs another `psd`, or
            the model has a large tensor in no layer that is known.
    """
    _check_law(rule, problem.criterion.law)
    check_psd(rule, problem)
    if problem.tokens is not None and rule.fisher_type in ("type-2", "recursive"):
        raise InputError(
            f"rule: fisher_type: {rule.fisher_type} cannot be combined with labels of "
            "tokens. Take mc."
        )
    if problem.tokens is not None and rule.kfac_approx == "reduce":
        raise InputError(
            "rule: kfac_approx: reduce cannot be combined with labels of tokens, of "
            "which each position has its own loss. Take expand."
        )
    if rule.fisher_type == "recursive":
        check_chain(problem.text)
    check_network(problem.network, rule.rule)
    rule_parts(rule, problem)


def check_psd(rule: QuadraticRule, problem: Problem) -> None:
    """Refuse a loss whose curvature cannot be made definite as a rule wants it.

    Args:
        rule: its specification.
        problem: network and loss.

    Raises:
        InputError: the loss has no likelihood that is known, is of tokens, or has too
            many possible targets.
    """
    law = problem.criterion.law
    if rule.psd == "refuse":
        return
    if law is None:
        raise InputError(
            f"rule: psd: {rule.psd} cannot be combined with a loss without a "
            "likelihood. Remove psd."
        )
    if not law.depends_on_targets:
        return
    if problem.tokens is not None:
        raise InputError(
            f"rule: psd: {rule.psd} cannot be combined with targets of tokens. Take a "
            "loss without variances or mixtures."
        )
    labels_of(rule, problem)


def check_likelihood(rule: QuadraticRule, loss: AnyLoss) -> None:
    """Refuse a loss that has no likelihood, by its specification.

    Args:
        rule: its specification.
        loss: the loss; a function of the user's own is not called.

    Raises:
        InputError: it has none that is known, or one whose curvature may be
            indefinite where `psd` refuses that.
    """
    _check_law(rule, law_of_loss(loss))


def _check_law(rule: QuadraticRule, law: OutputLaw | None) -> None:
    if law is None:
        raise InputError(
            f"rule: {rule.rule} cannot be combined with a loss other than "
            "cross_entropy, mse, sse, bce, poisson, gaussian or mixture_bernoulli. "
            "Take one of them, or another rule."
        )
    if law.depends_on_targets and rule.psd == "refuse":
        raise InputError(
            f"rule: psd: refuse cannot be combined with loss {law.name}, whose Hessian "
            "by the outputs may be indefinite. Set psd to clip, abs or fisher."
        )


def rule_parts(rule: QuadraticRule, problem: Problem) -> Parts:
    """Return the parts of a network that a rule has factors of.

    Args:
        rule: its specification.
        problem: network and loss.
    """
    return parts_of(
        problem.text, rule.kfac_approx, separate=rule.separate_weight_and_bias
    )


def no_factors(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Factors:
    """Return no blocks yet."""
    parts, rule = rule_parts(hyper.rule, problem), hyper.rule
    return Factors(
        no_blocks(parts, weights_MD),
        no_inverses(parts, weights_MD, rule.inverse),
        no_corrections(parts, weights_MD) if rule.is_corrected else (),
    )


def with_batch(
    factors: Factors,
    networks: Networks,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> Factors:
    """Return the factors with the batch averaged in, if it is to be.

    Args:
        factors: before the step.
        networks: of the step.
        weights_MD: where the step begins.
        hyper: with the choices of factors.
        context: of the step.

    Returns:
        The factors; exact inverses are of them, factored ones those before.
    """
    blocks, rule = factors.blocks, hyper.rule
    is_taken = context.count % rule.factor_update_steps == 0
    if is_taken and _are_used(hyper, context):
        parts = rule_parts(hyper.rule, context.problem)
        now = batch_blocks(networks, weights_MD, parts, hyper)
        blocks = averaged(blocks, now, _share(hyper, context))
    factors = factors._replace(blocks=blocks)
    if rule.inverse == "factored":
        return factors
    return _turned(factors, networks, weights_MD, hyper, context)


def _share(hyper: Hyper, context: Step) -> Tensor:
    """Return the weight of former batches in averages, (M, 1)."""
    # As Martens and Grosse (2015), section 5: the first batches weigh alike.
    before = 1 - 1 / (1 + context.count // hyper.rule.factor_update_steps)
    return hyper["factor_decay"].clamp(max=before)


def _turned(
    factors: Factors,
    networks: Networks,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> Factors:
    """Return factors with eigenvectors and corrected eigenvalues, if they are due."""
    rule, parts = hyper.rule, rule_parts(hyper.rule, context.problem)
    is_new = context.count % rule.inv_update_steps == 0
    if is_new:
        undamped_M1 = torch.zeros_like(hyper["l2"])
        inverted = inverses(factors.blocks, parts, hyper, undamped_M1)
        factors = factors._replace(inverses=inverted)
    is_taken = context.count % rule.factor_update_steps == 0
    if not rule.is_corrected or not (is_new or is_taken):
        return factors
    now = corrected(networks, weights_MD, parts, hyper, factors.inverses)
    if not is_new:  # along the eigenvectors that those before are along
        (now,) = averaged((factors.corrections,), (now,), _share(hyper, context))
    return factors._replace(corrections=now)


def _are_used(hyper: Hyper, context: Step) -> bool:
    """Return whether blocks of this step are averaged, or inverted before others."""
    rule, parts = hyper.rule, rule_parts(hyper.rule, context.problem)
    if bool(hyper["factor_decay"].any()) or parts.rest:
        return True
    until_next = range(context.count, context.count + rule.factor_update_steps)
    is_tried = rule.inverse == "factored" and rule.tries_dampings
    trial = rule.preconditioner_adaptation_interval if is_tried else None
    return any(
        step % rule.inv_update_steps == 0 or (trial and (step + 1) % trial == 0)
        for step in until_next
    )


def with_damping(
    factors: Factors,
    hyper: Hyper,
    context: Step,
    damping_M1: Tensor,
    *,
    is_searched: bool = False,
) -> Factors:
    """Return the factors with factored inverses of a damping, if they are due.

    Args:
        factors: of the step.
        hyper: with the choices of inverses.
        context: of the step.
        damping_M1: added to blocks.
        is_searched: several dampings are tried.
    """
    is_due = is_searched or context.count % hyper.rule.inv_update_steps == 0
    if not is_due or hyper.rule.inverse != "factored":
        return factors
    parts = rule_parts(hyper.rule, context.problem)
    inverted = inverses(factors.blocks, parts, hyper, damping_M1)
    return factors._replace(inverses=inverted)


def multiplied(
    vectors_MD: Tensor,
    factors: Factors,
    hyper: Hyper,
    context: Step,
    damping_M1: Tensor,
) -> Tensor:
    """Return the inverse of the damped blocks times a vector of each model.

    Args:
        vectors_MD: to be multiplied.
        factors: with their inverses.
        hyper: with the choices of factors.
        context: of the step.
        damping_M1: added to blocks, where an inverse does not have it.
    """
    parts = rule_parts(hyper.rule, context.problem)
    return preconditioned(
        vectors_MD,
        factors.inverses,
        factors.blocks,
        factors.corrections,
        parts,
        damping_M1,
    )
