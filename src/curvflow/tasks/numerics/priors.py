"""Densities on an interval that know nothing, as nodes and masses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.polynomials import Support

PRIORS = ("flat", "log", "arcsine")


@dataclass(frozen=True)
class Prior:
    """A density q0 and the rule by which integrals over the interval are taken.

    Attributes:
        nodes: ascending, (G,).
        lengths: of the interval that a node stands for, (G,): sum f(x) length is the
            integral of f.
        masses: of q0 at the nodes, of sum 1, (G,).
    """

    nodes: Tensor
    lengths: Tensor
    masses: Tensor


def prior(name: str, support: Support, num_nodes: int) -> Prior:
    """Return a density without a preference, in one of three senses.

    Args:
        name: `flat`; `log`, 1/x, flat in log x, with nodes spaced alike; `arcsine`,
            to which Chebyshev polynomials are orthogonal.
        support: ends of the interval; above zero for `log`.
        num_nodes: G.

    Returns:
        Nodes and masses; the rule is exact for polynomials of x, of log x for `log`.

    Raises:
        InputError: the interval is empty, or not above zero for `log`.
    """
    low, high = support
    if not low < high:
        raise InputError(f"support: expected low below high, got {low:g} and {high:g}.")
    if name == "log" and low <= 0:
        raise InputError(
            f"support: expected an interval above zero for the prior log, got {low:g} "
            f"to {high:g}. Take the prior flat, or another support."
        )
    t_G, w_G = _fejer(num_nodes)
    if name == "log":
        ratio = torch.log(torch.tensor(high / low, dtype=torch.float64))
        nodes = low * torch.exp(ratio * (1 + t_G) / 2)
        return Prior(nodes, nodes * ratio * w_G / 2, w_G / 2)
    nodes, lengths = low + (high - low) * (1 + t_G) / 2, (high - low) * w_G / 2
    even = torch.full_like(w_G, 1 / num_nodes)
    return Prior(nodes, lengths, even if name == "arcsine" else w_G / 2)


@lru_cache(maxsize=4)
def _fejer(count: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of Fejer's first rule on [-1, 1], ascending."""
    angle_G = (torch.arange(count, dtype=torch.float64) + 0.5) * torch.pi / count
    j = torch.arange(1, count // 2 + 1, dtype=torch.float64)
    sums_G = torch.cos(2 * angle_G[:, None] * j) @ (1 / (4 * j**2 - 1))
    return -torch.cos(angle_G), (2 / count) * (1 - 2 * sums_G)
