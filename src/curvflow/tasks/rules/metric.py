"""Gradient descent regularised by H w, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.rules.shared.regularisers import init, regularise
from curvflow.tasks.training.step_context import Hyper, Step

__all__ = ["init", "step"]


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, None]:
    """Take one step: w <- w - lr g - rate |H w| sign(w).

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr and rate, each (M, 1); the choice form.
        now: holds H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Jarvis (2021), Table 4.1, rows 3 and 4, which print rate w'H, form `raw`. Only
        with magnitude and sign as here are the numbers reached that the author reports.
    """
    assert now.product is not None
    along_MD = now.product
    if hyper.rule.form != "raw":
        along_MD = along_MD.abs()
    if hyper.rule.form == "abs_sign":
        along_MD = along_MD.mul_(weights_MD.sign())
    return regularise(
        gradient_MD, weights_MD, hyper, rate_M1=hyper["rate"], along_MD=along_MD
    ), None
