"""Path-SGD, for stacked models."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.models import model_name
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> None:
    """Keep nothing.

    Raises:
        InputError: the outputs of the model are no sums over paths.
    """
    if not problem.network.has_paths:
        name = model_name(json.loads(problem.text)["model"])
        raise InputError(
            "rule: path_sgd: expected a model whose outputs are sums over paths of "
            f"products of weights, got {name}. Use a model without batch norm that is "
            "not your own, or another rule."
        )


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, None]:
    """Take one step: w <- w - lr / gamma g, gamma = (d phi / d |w|^p)^(2/p).

    phi is the sum over all paths from an input or a bias to an output of |w|^p,
    multiplied along the path. A parameter that no path goes through stays.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr and eps, each (M, 1), and the choice p.
        context: for the network and the shape of its inputs.

    Returns:
        The new weights, and no state.

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617,
        section 4; here for shared weights, too, by the derivative of phi.
    """
    p = hyper.rule.p
    powers_MD = weights_MD.detach().abs().pow(p).requires_grad_()
    problem = context.problem
    phi_M = problem.network.path_sums(powers_MD, problem.input_shape, p)
    (through_MD,) = torch.autograd.grad(phi_M.sum(), powers_MD)
    gamma_MD = torch.maximum(through_MD.pow(2 / p), hyper["eps"])
    # Where gamma is 0, so is the gradient, unless an activation maps 0 elsewhere.
    scaled_MD = torch.where(gamma_MD > 0, gradient_MD / gamma_MD, 0)
    return torch.addcmul(weights_MD, hyper["lr"], scaled_MD, value=-1), None
