"""Responses of losses to shifts of the data."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.observables.susceptibility import (
    SusceptibilityParams,
)
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.llc.draws import number, posterior_of
from curvflow.tasks.llc.observables import average_arrays, observables, whole_loss
from curvflow.tasks.numerics.sampling.covariances import covariances
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.susceptibility")
def susceptibility(member: Member, machine: Machine) -> Outcome:
    """Estimate the derivative of mean losses by a shift of the data's weights.

    Args:
        member: `draws`, whose losses were kept.
        machine: not used.

    Returns:
        Responses, with standard errors, R-hat and effective draws.

    Raises:
        InputError: the draws have kept none of the losses named.

    Reference:
        Baker et al. (2025), arXiv:2504.18274, whose susceptibility is this over nbeta.
    """
    params, draws = cast("SusceptibilityParams", member.params), member.one("draws")
    whole = whole_loss(draws)
    shifts = observables(draws, params.shifts, "shifts")
    responding = whole
    if params.observables is not None:
        responding = whole.before(observables(draws, params.observables, "observables"))
    matrix = covariances(responding.values, shifts.values - whole.values)
    return Outcome(
        {
            **average_arrays(
                "susceptibility", matrix.times(-number(draws, "nbeta")), draws
            ),
            "observable": np.array(responding.names),
            "shift": np.array(shifts.names),
            **posterior_of(draws),
        }
    )
