"""Metropolis-adjusted Langevin algorithm: exact, over all the data."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.metropolis import Place, look, propose
from curvflow.tasks.numerics.sampling.now import Now
from curvflow.tasks.numerics.sampling.posteriors import Posterior

# Optimal as the dimension grows: Roberts and Rosenthal (1998).
TARGET_ACCEPTANCE = 0.574


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return loss, energy and drift where the chains start: a step computes one."""
    place = look(posterior, weights_CD)._asdict()
    return {name: place[name].clone() for name in ("losses", "energy", "drift")}


def step(state: dict[str, Tensor], now: Now) -> tuple[Tensor, Tensor]:
    """Propose a Langevin step; go there or stay.

    A proposal that is not finite is rejected.

    Returns:
        The mean losses where the step began and the probabilities, (C,).

    Reference:
        Roberts and Rosenthal (1998), doi:10.1111/1467-9868.00123.
    """
    here = Place(**{name: state[name] for name in Place._fields})
    there, probability_C = propose(now.posterior, here, now.lr, now.noise)
    goes_C = now.coins < probability_C
    for name in ("losses", "energy"):
        state[name] = torch.where(goes_C, getattr(there, name), state[name])
    for name in ("weights", "drift"):
        state[name] = torch.where(goes_C[:, None], getattr(there, name), state[name])
    return here.losses, probability_C.nan_to_num(0.0)
