"""Steps by the Gauss-Newton matrix of the batch, for stacked models.

In addition to models M and parameters D: L layers, whose blocks are separate columns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.rules.gauss_newton import GaussNewton
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.krylov.linear_solvers import (
    Multiply,
    Truncated,
    truncated_gradients,
)
from curvflow.tasks.rules.shared.kfac_control import (
    Control,
    among_others,
    begun,
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
    check_psd,
    multiplied,
    no_factors,
    with_batch,
    with_damping,
)
from curvflow.tasks.rules.shared.kfac_networks import Networks
from curvflow.tasks.rules.shared.kfac_parts import check_network
from curvflow.tasks.training.step_context import Hyper, Step


class State(NamedTuple):
    """State of the rule; numbers are (M, 1).

    Attributes:
        factors: of the preconditioner; empty without.
        control: dampings, and the state of the step before.
        solution: of the step before, (M, D); None where no search begins with it.
        iterations: of the step before; of layers, the most.
        residual: that it left, relative to the gradient; of layers, the largest.
    """

    factors: Factors
    control: Control
    solution: Tensor | None
    iterations: Tensor
    residual: Tensor


def check(rule: GaussNewton, problem: Problem) -> None:
    """Refuse samples that meet, and losses or layers that steps cannot be by."""
    check_network(problem.network, rule.rule)
    check_psd(rule, problem)
    if rule.preconditioner != "none":
        check_factors(rule, problem)


def check_loss(rule: GaussNewton, loss: AnyLoss) -> None:
    """Refuse a loss without a likelihood, where there are factors."""
    if rule.preconditioner != "none":
        check_likelihood(rule, loss)


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the dampings to begin with, and maybe no blocks yet."""
    check(hyper.rule, problem)
    factors = Factors()
    if hyper.rule.preconditioner != "none":
        factors = no_factors(weights_MD, hyper, problem)
    is_warm = bool((hyper["warm_start"] > 0).any())
    unknown_M1 = torch.full_like(weights_MD[:, :1], torch.nan)
    return State(
        factors,
        begun(weights_MD, hyper),
        torch.zeros_like(weights_MD) if is_warm else None,
        unknown_M1,
        unknown_M1,
    )


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: w <- w + a d + m v, (G + l2 + tau) d = -(g + l2 w).

    G is the Gauss-Newton matrix of the batch, or its diagonal blocks of layers, and v
    the step before. The rate a, and the momentum m where it is not given, minimise the
    quadratic model of the batch, of all of G.

    Args:
        gradient_MD: gradients g of the loss.
        state: dampings, the step before, and maybe factors and the last solution.
        weights_MD: weights w.
        hyper: as for `kfac`, with cg_tolerance and warm_start.
        context: for the network, the batch and draws.

    Returns:
        The new weights and state.

    Reference:
        Martens (2010), Deep learning via Hessian-free optimization, ICML.
    """
    return among_others(_step, gradient_MD, state, weights_MD, hyper, context)


def _step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    networks = Networks(context, weights_MD, hyper.rule.psd)
    control = state.control
    gradient_MD = gradient_MD.addcmul(hyper["l2"], weights_MD)
    factors, zeta_M1 = state.factors, zeta_of(control, hyper)
    if hyper.rule.preconditioner != "none":
        factors = with_batch(factors, networks, weights_MD, hyper, context)
        factors = with_damping(factors, hyper, context, hyper["l2"] + zeta_M1)
    state = state._replace(factors=factors)
    solved = _solved(networks, gradient_MD, state, weights_MD, hyper, context)
    solution_MD = solved.x.sum(2).to(weights_MD)
    move = move_along(solution_MD, networks, gradient_MD, control, weights_MD, hyper)
    move = move._replace(damping=zeta_M1)
    new_MD, control = taken(move, networks, control, weights_MD, hyper, context)
    return new_MD, State(
        factors,
        control,
        None if state.solution is None else solution_MD,
        solved.iterations.amax(1, keepdim=True).to(weights_MD),
        solved.residuals.amax(1, keepdim=True).to(weights_MD),
    )


def _solved(
    networks: Networks,
    gradient_MD: Tensor,
    state: State,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> Truncated:
    """Return the directions of the layers, which are zero elsewhere, or that of all."""
    mask_DL = _mask(context.problem, hyper).to(weights_MD.device)
    product = networks.multiply(weights_MD, mask_DL.shape[1])
    damping_M11 = (hyper["l2"] + state.control.damping).double().unsqueeze(2)

    def multiply(columns_MDL: Tensor) -> Tensor:
        image_MDL = product(columns_MDL.to(weights_MD)).double()
        return image_MDL * mask_DL + damping_M11 * columns_MDL

    start_MDL = None
    if state.solution is not None:
        start_MD = hyper["warm_start"].double() * state.solution.double()
        start_MDL = start_MD.unsqueeze(2) * mask_DL
    return truncated_gradients(
        multiply,
        -gradient_MD.double().unsqueeze(2) * mask_DL,
        tol_M1=hyper["cg_tolerance"].double(),
        max_iterations=hyper.rule.cg_steps,
        start_MDS=start_MDL,
        precondition=_preconditioner(state, weights_MD, mask_DL, hyper, context),
    )


def _mask(problem: Problem, hyper: Hyper) -> Tensor:
    """Return 1 at the parameters of each column, (D, L)."""
    layout = problem.network.layout
    if hyper.rule.matrix == "whole":
        return torch.ones(layout.size, 1, dtype=torch.float64)
    places = list(layout.modules().values())
    mask_DL = torch.zeros(layout.size, len(places), dtype=torch.float64)
    for number, at in enumerate(places):
        mask_DL[at, number] = 1.0
    return mask_DL


def _preconditioner(
    state: State, like_MD: Tensor, mask_DL: Tensor, hyper: Hyper, context: Step
) -> Multiply | None:
    """Return the product with the inverse of the damped factors, layer by layer."""
    if hyper.rule.preconditioner == "none":
        return None
    damping_M1 = hyper["l2"] + zeta_of(state.control, hyper)

    def precondition(columns_MDL: Tensor) -> Tensor:
        each = [
            multiplied(column_MD, state.factors, hyper, context, damping_M1)
            for column_MD in columns_MDL.to(like_MD).unbind(2)
        ]
        return torch.stack(each, dim=2).double() * mask_DL

    return precondition


def rates(state: State, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum of the step before, (M, 1) each."""
    return rates_of(state.control, hyper)


def recorded(state: State, hyper: Hyper) -> dict[str, Tensor]:
    """Return the numbers that are recorded as curves, (M, 1) each, by name."""
    return {
        **recorded_of(state.control, hyper),
        "cg_iterations": state.iterations,
        "cg_residual": state.residual,
    }
