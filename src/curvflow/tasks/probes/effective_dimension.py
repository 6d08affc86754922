"""Effective dimension of a curvature matrix, from Ritz data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.probes.effective_dimension import EffectiveDimensionParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.ritz_data import (
    batch_key,
    data_bytes,
    floor_of,
    functional_arrays,
    member_bytes,
    num_products,
    until_resolved,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.krylov.functionals import effective_dimension as dimension
from curvflow.tasks.numerics.krylov.functionals import share_above, steps_needed
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.registry import Machine, computes


@computes("probe.effective_dimension", member_bytes=member_bytes, data_bytes=data_bytes)
def effective_dimension(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate the sum of lambda / (lambda + prior precision) over the spectrum.

    Args:
        members: `ritz`, or inputs of an operator, and parameters that differ in the
            seed.
        machine: the device to compute on.

    Returns:
        Per member the dimension at each prior precision, with standard errors, an
        interval, and whether the quadrature has converged.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        MacKay (1992), doi:10.1162/neco.1992.4.3.415, for a positive definite Hessian;
        here negative eigenvalues count as zero.
    """
    together = partial(until_resolved, machine=machine, judge=_judged)
    return grouped(members, batch_key, together)


def _judged(members: Sequence[Member], ritz: RitzData) -> list[tuple[Outcome, bool]]:
    params = cast("EffectiveDimensionParams", members[0].params)
    relative, floor = params.rel_error, floor_of(members[0])
    estimates = dimension(ritz, params.prior_precision, floor=floor)
    steps = torch.stack(
        [
            steps_needed(
                estimates.part(number), ritz, share_above(alpha), relative, floor=floor
            )
            for number, alpha in enumerate(params.prior_precision)
        ],
        dim=1,
    )
    outcomes = []
    for number, member in enumerate(members):
        dimensions = estimates.of_model(number)
        arrays = {
            "prior_precision": np.array(params.prior_precision),
            **functional_arrays(
                "effective_dimension", dimensions, steps[number], relative=relative
            ),
            "effective_dimension_draws": dimensions.estimate.draws.numpy(),
            "size": np.array(ritz.size, dtype=np.int64),
            "num_matvecs": num_products(member, ritz, number),
        }
        outcomes.append((Outcome(arrays), bool(arrays["converged"].all())))
    return outcomes
