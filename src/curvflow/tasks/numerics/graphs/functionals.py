"""Functionals of a graph's spectrum by quadrature of Ritz data, bounded on both sides.

Each of them is, up to a sign and a constant, a trace of a function whose derivatives
alternate in sign, so that Gauss and Gauss-Radau rules bound it.
Further letters: S runs, K nodes.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import torch

from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    Bounded,
    Peak,
    bounded,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes, over_forms

# Pole of a function that is smooth everywhere.
NOWHERE = -sys.float_info.max


def heat_trace(ritz: RitzData, t: float) -> Bounded:
    """Estimate tr exp(-t L) of a Laplacian L.

    Args:
        ritz: runs on L from random vectors.
        t: time, positive.

    Returns:
        The estimate with its bounds, (M,).

    Examples:
        >>> from curvflow.tasks.numerics import Dense, lanczos
        >>> L = Dense(torch.eye(4).double())
        >>> trace = heat_trace(lanczos(L, torch.ones(4), num_steps=2), 1.0)
        >>> round(trace.estimate.mean.item(), 6)  # 4 / e
        1.471518

    Reference:
        Tsitsulin et al. (2018), NetLSD, doi:10.1145/3219819.3219991, equation 3.
    """
    lost = Bernstein(lambda x: -torch.expm1(-t * x), pole=NOWHERE, most=1.0)
    return _less(bounded(ritz, lost, floor=0.0), ritz.size)


def entropy(ritz: RitzData, trace: float, *, largest: float) -> Bounded:
    """Estimate the von Neumann entropy of L / tr L, in natural logarithms.

    Args:
        ritz: runs on a Laplacian L from random vectors.
        trace: tr L.
        largest: an upper bound of the eigenvalues.

    Returns:
        The estimate with its bounds, (M,).

    Reference:
        Braunstein, Ghosh and Severini (2006), doi:10.1007/s00026-006-0289-3.
    """

    def f(x: torch.Tensor) -> torch.Tensor:
        part = x.clamp_min(0) / trace
        return -part.xlogy(part)

    mode = trace / math.e
    if largest > mode:  # few nodes hold all edges
        modes_M = torch.full(ritz.steps.shape[:1], mode, dtype=torch.float64)
        return bounded(ritz, Peak(f, modes_M), floor=0.0)
    # It is continuous at zero, so that a rule may have a node there.
    return bounded(ritz, Bernstein(f, pole=-trace, most=1 / math.e), floor=0.0)


def estrada_index(ritz: RitzData, beta: float, *, largest: float) -> Bounded:
    """Estimate tr exp(beta A) of an adjacency A.

    Args:
        ritz: runs on A from random vectors.
        beta: inverse temperature, positive.
        largest: an upper bound of the eigenvalues.

    Returns:
        The estimate with its bounds, (M,).

    Reference:
        Estrada (2000), doi:10.1016/S0009-2614(00)00158-5; with beta, Estrada and
        Hatano (2007), doi:10.1016/j.cplett.2007.03.079.
    """
    rising = Bernstein(lambda x: -torch.exp(-beta * x), pole=NOWHERE, is_clamped=False)
    return _less(bounded(_negated(ritz), rising, floor=-largest), 0.0)


def closed_walks(ritz: RitzData, length: int) -> Bounded:
    """Estimate tr A^k, the closed walks of k steps, each as the product of its weights.

    Args:
        ritz: runs on an adjacency A of K steps from random vectors.
        length: k, at most 2 K - 1, so that the rule is exact.

    Returns:
        The estimate with its bounds, (M,).
    """
    estimate = over_forms(ritz, nodes(ritz) ** length)
    return Bounded(estimate, estimate.draws, estimate.draws)


def triangles(ritz: RitzData) -> Bounded:
    """Estimate the number of triangles, tr A^3 / 6, of a graph without loops.

    Args:
        ritz: runs on its adjacency of two steps or more from random vectors.

    Returns:
        The estimate with its bounds, (M,).
    """
    estimate = over_forms(ritz, nodes(ritz) ** 3 / 6)
    return Bounded(estimate, estimate.draws, estimate.draws)


def _less(found: Bounded, whole: float) -> Bounded:
    """Return what is left of a whole."""
    of = found.estimate
    left = replace(of, draws=whole - of.draws, mean=whole - of.mean)
    return Bounded(left, whole - found.upper, whole - found.lower, found.most)


def _negated(ritz: RitzData) -> RitzData:
    """Return the Ritz data of the negative operator."""
    values, order = (-ritz.values).sort(dim=2)  # NaN comes last
    return replace(
        ritz,
        values=values,
        weights=ritz.weights.gather(2, order),
        residuals=ritz.residuals.gather(2, order),
    )
