"""Steps along the gradient and along a regulariser, each at a rate of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.training.step_context import Hyper, Step

# Which entries decay, by `mask` and `at_equality`: these, of |H w| against the bound.
COMPARED = {
    ("insignificant", "regularised"): torch.le,
    ("insignificant", "protected"): torch.lt,
    ("inverted", "regularised"): torch.ge,
    ("inverted", "protected"): torch.gt,
}


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> None:
    """Return None: these rules keep nothing between steps."""


def regularise(
    gradient_MD: Tensor,
    weights_MD: Tensor,
    hyper: Hyper,
    *,
    rate_M1: Tensor,
    along_MD: Tensor,
) -> Tensor:
    """Return w - lr g - rate r.

    Args:
        gradient_MD: gradients g.
        weights_MD: weights w.
        hyper: holds lr.
        rate_M1: of the regulariser; at 0 the step is that of `sgd` bit for bit.
        along_MD: its direction r.

    Returns:
        The new weights.
    """
    new_MD = torch.addcmul(weights_MD, hyper["lr"], gradient_MD, value=-1)
    return new_MD.addcmul_(rate_M1, along_MD, value=-1)


def decay(gradient_MD: Tensor, weights_MD: Tensor, hyper: Hyper) -> Tensor:
    """Return w - lr g - decay_factor rate w."""
    rate_M1 = hyper["decay_factor"] * hyper["rate"]
    return regularise(
        gradient_MD, weights_MD, hyper, rate_M1=rate_M1, along_MD=weights_MD
    )


def selective_decay(
    gradient_MD: Tensor, weights_MD: Tensor, hyper: Hyper, now: Step, rate: str
) -> Tensor:
    """Return w - lr g - decay_factor rate w m, with the mask m of `selected`.

    Args:
        gradient_MD: gradients g.
        weights_MD: weights w.
        hyper: holds lr, decay_factor, the rate and omega.
        now: holds H w.
        rate: name of the rate.

    Returns:
        The new weights.
    """
    return regularise(
        gradient_MD,
        weights_MD,
        hyper,
        rate_M1=hyper["decay_factor"] * hyper[rate],
        along_MD=weights_MD * selected(hyper, now),
    )


def selected(hyper: Hyper, now: Step) -> Tensor:
    """Return the mask m of the parameters that decay.

    Args:
        hyper: holds omega, and the choices maximum, at_equality and mask.
        now: holds H w.

    Returns:
        Booleans (M, D). By default they hold where |H w| <= omega max(H w), the
        maximum being over the parameter tensor.
    """
    assert now.product is not None
    size_MD = now.product.abs()
    is_signed = hyper.rule.maximum == "signed"
    largest_MD = now.per_tensor("amax", now.product if is_signed else size_MD)
    compared = COMPARED[hyper.rule.mask, hyper.rule.at_equality]
    return compared(size_MD, hyper["omega"] * largest_MD)
