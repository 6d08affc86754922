"""Stochastic gradient Langevin dynamics."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import Now


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return nothing: the weights are all that is kept."""
    return {}


def step(state: dict[str, Tensor], now: Now) -> tuple[Tensor, None]:
    """Take one step: w <- w - (lr / 2) grad U(w) + sqrt(lr) z.

    Returns:
        The mean losses seen where the step began, (C,), and None.

    Reference:
        Welling and Teh (2011), Proceedings of ICML, equation 4, localised as in
        Lau et al. (2023), arXiv:2308.12108.
    """
    return now.langevin(state["weights"]), None
