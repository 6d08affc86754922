"""The part of a learning coefficient that the Hessian explains."""

from __future__ import annotations

import math

import numpy as np

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.ritz_data import functional_arrays
from curvflow.tasks.llc.draws import (
    Mean,
    localization,
    mass_below,
    negative_mass,
    number,
    posterior_of,
    ritz_of,
)
from curvflow.tasks.numerics.krylov.functionals import (
    bounded,
    share_above,
    steps_needed,
)
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.llc_regular")
def llc_regular(member: Member, machine: Machine) -> Outcome:
    """Compare a learning coefficient with that of a quadratic loss.

    Of L(w*) + w.Hw / 2, nbeta (E L - L(w*)) is the sum over the eigenvalues h of H of
    h / (h + gamma / nbeta) / 2. No product with H is made.

    Args:
        member: `draws` and `ritz`.
        machine: not used.

    Returns:
        That sum, and the rest of the coefficient, with standard errors.

    Raises:
        InputError: the draws have no localization, or the Hessian is of other
            parameters.

    Reference:
        MacKay (1992), doi:10.1162/neco.1992.4.3.415, for the sum.
    """
    draws = member.one("draws")
    ritz = ritz_of(member)
    precision = localization(draws) / number(draws, "nbeta")
    half = share_above(precision, factor=0.5)
    bounds = bounded(ritz, half)
    regular = Mean(float(bounds.estimate.mean), float(bounds.total))
    measured = Mean(number(draws, "llc_mean"), number(draws, "llc_sem"))
    apart = measured.value - regular.value
    error = math.hypot(measured.sem, regular.sem)
    numbers = {
        "llc_mean": measured.value,
        "llc_sem": measured.sem,
        "llc_singular": apart,
        "llc_singular_sem": error,
        "z": apart / error if error else math.nan,
        "prior_precision": precision,
        "negative_mass": negative_mass(ritz),
        "unheld_mass": mass_below(ritz, -precision),
    }
    return Outcome(
        {
            **functional_arrays(
                "llc_regular",
                bounds.of_model(0),
                steps_needed(bounds, ritz, half, None)[0],
                flag="regular_converged",
            ),
            **{name: np.array(value) for name, value in numbers.items()},
            "num_parameters": np.array(ritz.size, dtype=np.int64),
            **posterior_of(draws),
            "verdict": np.array(draws["verdict"]),
        }
    )
