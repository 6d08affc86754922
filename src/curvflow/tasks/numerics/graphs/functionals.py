"""Functionals of a graph's spectrum by quadrature of Ritz data, bounded on both sides.

Each of them is, up to a sign and a constant, a trace of a function whose derivatives
alternate in sign, so that Gauss and Gauss-Radau rules bound it.
Further letters: S runs, K nodes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    Bounded,
    Peak,
    bounded,
    floor_by_test,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes, over_forms
from curvflow.tasks.numerics.operators.deflation import NO_ATOMS, Atoms

# Pole of a function that is smooth everywhere.
NOWHERE = -sys.float_info.max


def heat_trace(ritz: RitzData, t: float, *, atoms: Atoms = NO_ATOMS) -> Bounded:
    """Estimate tr exp(-t L) of a Laplacian L.

    Args:
        ritz: runs on L from random vectors.
        t: time, positive.
        atoms: further eigenvalues, known exactly, that the runs are not of.

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
    bounds = _less(bounded(ritz, lost, floor=0.0), ritz.size)
    return bounds.plus(float(atoms.trace(lambda x: np.exp(-t * x))))


def entropy(
    ritz: RitzData, trace: float, *, largest: float, atoms: Atoms = NO_ATOMS
) -> Bounded:
    """Estimate the von Neumann entropy of L / tr L, in natural logarithms.

    Args:
        ritz: runs on a Laplacian L from random vectors.
        trace: tr L.
        largest: an upper bound of the eigenvalues.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The estimate with its bounds, (M,).

    Reference:
        Braunstein, Ghosh and Severini (2006), doi:10.1007/s00026-006-0289-3.
    """

    def f(x: torch.Tensor) -> torch.Tensor:
        part = x.clamp_min(0) / trace
        return -part.xlogy(part)

    known = float(atoms.trace(lambda x: f(torch.as_tensor(x)).numpy()))
    mode = trace / math.e
    if largest > mode:  # few nodes hold all edges
        modes_M = torch.full(ritz.steps.shape[:1], mode, dtype=torch.float64)
        return bounded(ritz, Peak(f, modes_M), floor=0.0).plus(known)
    # It is continuous at zero, so that a rule may have a node there.
    rising = Bernstein(f, pole=-trace, most=1 / math.e)
    return bounded(ritz, rising, floor=0.0).plus(known)


def estrada_index(
    ritz: RitzData, beta: float, *, largest: float, atoms: Atoms = NO_ATOMS
) -> Bounded:
    """Estimate tr exp(beta A) of an adjacency A.

    Args:
        ritz: runs on A from random vectors.
        beta: inverse temperature, positive.
        largest: an upper bound of the eigenvalues.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The estimate with its bounds, (M,).

    Reference:
        Estrada (2000), doi:10.1016/S0009-2614(00)00158-5; with beta, Estrada and
        Hatano (2007), doi:10.1016/j.cplett.2007.03.079.
    """
    rising = Bernstein(lambda x: -torch.exp(-beta * x), pole=NOWHERE, is_clamped=False)
    bounds = _less(bounded(_negated(ritz), rising, floor=-largest), 0.0)
    return bounds.plus(float(atoms.trace(lambda x: np.exp(beta * x))))


def closed_walks(ritz: RitzData, length: int, *, atoms: Atoms = NO_ATOMS) -> Bounded:
    """Estimate tr A^k, the closed walks of k steps, each as the product of its weights.

    Args:
        ritz: runs on an adjacency A of K steps from random vectors.
        length: k, at most 2 K - 1, so that the rule is exact.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The estimate with its bounds, (M,).
    """
    return _exact(ritz, lambda x: x**length, atoms)


def triangles(ritz: RitzData, *, atoms: Atoms = NO_ATOMS) -> Bounded:
    """Estimate the number of triangles, tr A^3 / 6, of a graph without loops.

    Args:
        ritz: runs on its adjacency of two steps or more from random vectors.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The estimate with its bounds, (M,).
    """
    return _exact(ritz, lambda x: x**3 / 6, atoms)


def log_trees(
    ritz: RitzData, known: float, *, atoms: Atoms = NO_ATOMS, is_zero: bool = False
) -> Bounded:
    """Estimate the logarithm of the number of spanning trees.

    Args:
        ritz: runs on a Laplacian from random vectors, of positive eigenvalues alone.
        known: added to the sum of the logarithms of these.
        atoms: further eigenvalues, known exactly; those of zero do not count.
        is_zero: the runs are of an eigenvalue of zero instead, as all others are known.

    Returns:
        The estimate with its bounds; without a lower one where the runs do not show
        what the least eigenvalue is above.

    Reference:
        Kirchhoff's matrix-tree theorem; Chung (1997), Spectral Graph Theory, for the
        normalized Laplacian.
    """
    positive = float(_positive(atoms).trace(np.log))
    return _rising(ritz, torch.log, is_zero).plus(known + positive)


def sum_of_inverses(
    ritz: RitzData, factor: float, *, atoms: Atoms = NO_ATOMS, is_zero: bool = False
) -> Bounded:
    """Estimate a factor times the sum of the inverses of the positive eigenvalues.

    Args:
        ritz: runs on a Laplacian from random vectors, of positive eigenvalues alone.
        factor: D for the Kirchhoff index, 1 for Kemeny's constant.
        atoms: further eigenvalues, known exactly; those of zero do not count.
        is_zero: the runs are of an eigenvalue of zero instead, as all others are known.

    Returns:
        The estimate with its bounds; without an upper one where the runs do not show
        what the least eigenvalue is above.

    Reference:
        Klein and Randic (1993), doi:10.1007/BF01164627, for the Kirchhoff index.
    """
    bounds = _less(_rising(ritz, lambda x: -factor / x, is_zero), 0.0)
    return bounds.plus(float(_positive(atoms).trace(lambda x: factor / x)))


def _positive(atoms: Atoms) -> Atoms:
    is_positive = atoms.values > 0  # that of a component is zero exactly
    return Atoms(atoms.values[is_positive], atoms.counts[is_positive])


def _rising(
    ritz: RitzData, f: Callable[[torch.Tensor], torch.Tensor], is_zero: bool
) -> Bounded:
    """Return the trace of an increasing function with a pole at zero."""
    if is_zero:
        return _exact(ritz, lambda x: 0.0 * x, NO_ATOMS)
    floor = floor_by_test(ritz)
    bounds = bounded(ritz, Bernstein(f, pole=0.0, is_clamped=False), floor=floor)
    if floor is None:
        return replace(bounds, lower=torch.full_like(bounds.lower, -math.inf))
    return bounds


def _exact(ritz: RitzData, f: Callable[[Any], Any], atoms: Atoms) -> Bounded:
    """Return the trace of a polynomial for which the rules are exact."""
    estimate = over_forms(ritz, f(nodes(ritz)))
    bounds = Bounded(estimate, estimate.draws, estimate.draws)
    return bounds.plus(float(atoms.trace(f)))


def _less(bounds: Bounded, whole: float) -> Bounded:
    """Return the rest of a whole."""
    of = bounds.estimate
    left = replace(of, draws=whole - of.draws, mean=whole - of.mean)
    return Bounded(left, whole - bounds.upper, whole - bounds.lower, bounds.most)


def _negated(ritz: RitzData) -> RitzData:
    """Return the Ritz data of the negative operator."""
    values, order = (-ritz.values).sort(dim=2)  # NaN comes last
    return replace(
        ritz,
        values=values,
        weights=ritz.weights.gather(2, order),
        residuals=ritz.residuals.gather(2, order),
    )
