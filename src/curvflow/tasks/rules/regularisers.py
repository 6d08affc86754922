"""Gradient descent with a regulariser at a rate of its own, for stacked models.

    w <- w - lr g - rate r

The regulariser r is |H w| sign(w) of a metric, decay_factor w of a decay, and
decay_factor w m of a selective decay, its mask m being 1 where weights matter least.

Reference:
    Jarvis (2021), Table 4.1, rows 3 to 8.
"""

from __future__ import annotations

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


def l2(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: w <- w - lr g - decay_factor rate w.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate and decay_factor, each (M, 1).
        context: not used.

    Returns:
        The new weights.

    Reference:
        Row 5.
    """
    return _decayed(gradient_MD, weights_MD, hyper), None


def selective_l2(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: w <- w - lr g - decay_factor rate w m, m = [|H w| <= bound].

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate, decay_factor and omega, each (M, 1); the choices maximum,
            at_equality and mask.
        context: holds H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Row 6, which protects a parameter at equality. The default regularises it, so
        that a tensor of which all H w is 0 decays.
    """
    mask_MD = selected(hyper, context)
    return _decayed(gradient_MD, weights_MD, hyper, mask_MD=mask_MD), None


def l2_stopped(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: that of `l2` in the epochs before tau, then w <- w - lr g.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate and decay_factor, each (M, 1); the choice tau.
        context: has the epoch.

    Returns:
        The new weights.

    Reference:
        Row 7; epochs count from 0, and the one equal to tau is the first without decay.
    """
    if context.epoch < hyper.rule.tau:
        return _decayed(gradient_MD, weights_MD, hyper), None
    return torch.addcmul(weights_MD, hyper["lr"], gradient_MD, value=-1), None


def l2_stopped_selective(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Stepped:
    """Take one step: that of `l2` before epoch tau, then that of `selective_l2`.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate, selective_rate, decay_factor and omega, each (M, 1); the
            choices tau, maximum, at_equality and mask.
        context: has the epoch, and from tau on H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Row 8, which leaves the epoch equal to tau undefined; here it is the first of
        the selective decay.
    """
    if context.epoch < hyper.rule.tau:
        return _decayed(gradient_MD, weights_MD, hyper), None
    mask_MD = selected(hyper, context)
    return _decayed(gradient_MD, weights_MD, hyper, "selective_rate", mask_MD), None


RULES = {
    "metric": Functions(init=init, step=metric),
    "l2": Functions(init=init, step=l2),
    "selective_l2": Functions(init=init, step=selective_l2),
    "l2_stopped": Functions(init=init, step=l2_stopped),
    "l2_stopped_selective": Functions(init=init, step=l2_stopped_selective),
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


def _decayed(
    gradient_MD: Tensor,
    weights_MD: Tensor,
    hyper: Hyper,
    rate: str = "rate",
    mask_MD: Tensor | None = None,
) -> Tensor:
    """Return w - lr g - decay_factor rate w m, the rate by its name."""
    rate_M1 = hyper["decay_factor"] * hyper[rate]
    along_MD = weights_MD if mask_MD is None else weights_MD * mask_MD
    return _regularised(gradient_MD, weights_MD, hyper, rate_M1, along_MD)


def _regularised(
    gradient_MD: Tensor,
    weights_MD: Tensor,
    hyper: Hyper,
    rate_M1: Tensor,
    along_MD: Tensor,
) -> Tensor:
    """Return w - lr g - rate r; at rate 0 the step of `sgd`, bit for bit."""
    new_MD = torch.addcmul(weights_MD, hyper["lr"], gradient_MD, value=-1)
    return new_MD.addcmul_(rate_M1, along_MD, value=-1)
