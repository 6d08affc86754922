"""Covariances of losses over the posterior."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.observables.covariances import CovariancesParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.llc.observables import average_arrays, observables
from curvflow.tasks.numerics.sampling.covariances import covariances as covariances_of
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.covariances")
def covariances(member: Member, machine: Machine) -> Outcome:
    """Estimate covariances of losses at the draws, each with its error.

    Args:
        member: `draws`, whose losses were kept.
        machine: not used.

    Returns:
        The matrix with standard errors, R-hat and effective draws of every entry.

    Raises:
        InputError: the draws have kept none of the losses named.
    """
    params, draws = cast("CovariancesParams", member.params), member.one("draws")
    rows = observables(draws, params.rows, "rows")
    columns = rows
    if params.columns is not None:
        columns = observables(draws, params.columns, "columns")
    matrix = covariances_of(rows.values, None if columns is rows else columns.values)
    return Outcome(
        {
            **average_arrays("covariance", matrix, draws),
            "row": np.array(rows.names),
            "column": np.array(columns.names),
            "nbeta": draws["nbeta"],
        }
    )
