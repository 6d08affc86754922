"""How far unadjusted steps raise the local learning coefficient."""

from __future__ import annotations

import math
import statistics


def bias_of_steps(acceptance: float, llc: float) -> float:
    """Bound the relative excess of an estimate that unadjusted Langevin steps cause.

    At a quadratic minimum with curvatures c_i of the energy and step epsilon, the
    acceptance is 2 Phi(-s / 2) with s^2 = sum (epsilon c_i)^3 / 16, and the excess is
    sum epsilon c_i / 8, in 2 lambda directions at most (s lambda)^(2/3) / 2:
    reached when all c_i are equal.

    Args:
        acceptance: mean probability at which a Metropolis step would accept.
        llc: lambda, the estimate.

    Returns:
        Excess over the estimate; NaN if either is not positive.

    Reference:
        Roberts and Rosenthal (1998), doi:10.1111/1467-9868.00123, theorem 1, for s.
    """
    if not (acceptance > 0 and llc > 0):
        return math.nan
    half = statistics.NormalDist().inv_cdf(min(acceptance, 1.0) / 2)
    bound: float = (8 * (2 * half) ** 2 / llc) ** (1 / 3) / 4
    return bound
