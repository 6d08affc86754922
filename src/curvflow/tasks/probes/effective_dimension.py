"""Effective dimension of a curvature matrix, from Ritz data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.effective_dimension import EffectiveDimensionParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.ritz_data import (
    batch_key,
    data_bytes,
    member_bytes,
    num_products,
    ritz_data,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.krylov.quadrature import effective_dimension as dimension
from curvflow.tasks.registry import Machine, computes


@computes("probe.effective_dimension", member_bytes=member_bytes, data_bytes=data_bytes)
def effective_dimension(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate the sum of lambda / (lambda + prior precision) over the spectrum.

    Args:
        members: `ritz`, or inputs of an operator, and parameters that differ in the
            seed.
        machine: the device to compute on.

    Returns:
        Per member the dimension at each prior precision, with standard errors.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        MacKay (1992), doi:10.1162/neco.1992.4.3.415, for a positive definite Hessian;
        here negative eigenvalues count as zero.
    """
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params = cast("EffectiveDimensionParams", members[0].params)
    ritz = ritz_data(members, machine)
    estimate = dimension(ritz, params.prior_precision)
    return [
        Outcome(
            {
                "prior_precision": np.array(params.prior_precision),
                "effective_dimension": estimate.mean[number].numpy(),
                "effective_dimension_sem": estimate.sem[number].numpy(),
                "effective_dimension_draws": estimate.draws[number].numpy(),
                "size": np.array(ritz.size, dtype=np.int64),
                "num_matvecs": num_products(member, ritz, number),
            }
        )
        for number, member in enumerate(members)
    ]
