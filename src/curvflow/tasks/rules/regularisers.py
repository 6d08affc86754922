"""Gradient descent with a regulariser at a separate rate, for stacked models.

    w <- w - lr g - rate r

The regulariser r is |H w| sign(w) of a metric, decay_factor w of a decay, and
decay_factor w m of a selective decay, its mask m being 1 where weights matter least.

Reference:
    Jarvis (2021), Table 4.1, rows 3 to 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import Functions
from curvflow.tasks.training.step_context import Hyper, Step

# Which entries decay, by `mask` and `at_equality`: these, of |H w| against the bound.
COMPARED = {
    ("insignificant", "regularised"): torch.le,
    ("insignificant", "protected"): torch.lt,
    ("inverted", "regularised"): torch.ge,
    ("inverted", "protected"): torch.gt,
}
Stepped = tuple[Tensor, None]


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> None:
    """Return None: these rules keep nothing between steps."""


def metric(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: w <- w - lr g - rate |H w| sign(w).

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr and rate, each (M, 1); the choice form.
        context: holds H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Rows 3 and 4, which print rate w'H, form `raw`. Only with magnitude and sign as
        here are the numbers reached that the author reports.
    """
    assert context.product is not None
    along_MD = context.product
    if hyper.rule.form != "raw":
        along_MD = along_MD.abs()
    if hyper.rule.form == "abs_sign":
        along_MD = along_MD.mul_(weights_MD.sign())
    return _regularised(gradient_MD, weights_MD, hyper, hyper["rate"], along_MD), None


@dataclass(frozen=True)
class Decay:
    """A decay of the weights, at the rate of a name, of all or of some."""

    rate: str = "rate"
    is_selective: bool = False


# The decay before epoch tau and that from it on; rules without tau have one of them.
DECAYS: dict[str, tuple[Decay | None, Decay | None]] = {
    "l2": (None, Decay()),
    "selective_l2": (None, Decay(is_selective=True)),
    "l2_stopped": (Decay(), None),
    "l2_stopped_selective": (Decay(), Decay("selective_rate", is_selective=True)),
}


def decay(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: w <- w - lr g - decay_factor rate w m, the rate that of the epoch.

    The mask m of a selective decay is [|H w| <= bound], else 1.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate and decay_factor, of some rules selective_rate and omega, each
            (M, 1); the choices tau, maximum, at_equality and mask.
        context: has the epoch, and for a selective decay H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Rows 5 to 8. Row 6 protects a parameter at equality; the default regularises it,
        so that a tensor of which all H w is 0 decays. Rows 7 and 8: epochs count from
        0; row 7 has no decay at the one equal to tau, and row 8, which leaves it
        undefined, begins its selective decay there.
    """
    before, after = DECAYS[hyper.rule.rule]
    now = before if context.epoch < getattr(hyper.rule, "tau", 0) else after
    if now is None:
        return _sgd(gradient_MD, weights_MD, hyper), None
    along_MD = weights_MD
    if now.is_selective:
        along_MD = along_MD * selected(hyper, context)
    rate_M1 = hyper["decay_factor"] * hyper[now.rate]
    return _regularised(gradient_MD, weights_MD, hyper, rate_M1, along_MD), None


RULES = {
    "metric": Functions(init=init, step=metric),
    **{name: Functions(init=init, step=decay) for name in DECAYS},
}


def selected(hyper: Hyper, context: Step) -> Tensor:
    """Return the mask m of the parameters that decay.

    Args:
        hyper: holds omega, and the choices maximum, at_equality and mask.
        context: holds H w.

    Returns:
        Booleans (M, D). By default they hold where |H w| <= omega max(H w), the
        maximum being over the parameter tensor.
    """
    assert context.product is not None
    size_MD = context.product.abs()
    is_signed = hyper.rule.maximum == "signed"
    largest_MD = context.per_tensor("amax", context.product if is_signed else size_MD)
    compared = COMPARED[hyper.rule.mask, hyper.rule.at_equality]
    return compared(size_MD, hyper["omega"] * largest_MD)


def _regularised(
    gradient_MD: Tensor,
    weights_MD: Tensor,
    hyper: Hyper,
    rate_M1: Tensor,
    along_MD: Tensor,
) -> Tensor:
    """Return w - lr g - rate r; at rate 0 the step of `sgd`, bit for bit."""
    new_MD = _sgd(gradient_MD, weights_MD, hyper)
    return new_MD.addcmul_(rate_M1, along_MD, value=-1)


def _sgd(gradient_MD: Tensor, weights_MD: Tensor, hyper: Hyper) -> Tensor:
    return torch.addcmul(weights_MD, hyper["lr"], gradient_MD, value=-1)
