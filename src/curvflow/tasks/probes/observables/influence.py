"""Bayesian influence functions."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.observables.influence import InfluenceParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.llc.observables import average_arrays, observables
from curvflow.tasks.numerics.sampling.covariances import covariances
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.influence")
def influence(member: Member, machine: Machine) -> Outcome:
    """Estimate how the mean loss of queries changes with the weights of samples.

    Args:
        member: `draws`, whose losses were kept.
        machine: not used.

    Returns:
        Minus the covariances, with standard errors, R-hat and effective draws.

    Raises:
        InputError: the draws have kept none of the losses named.

    Reference:
        Kreer et al. (2025), arXiv:2509.26544.
    """
    params, draws = cast("InfluenceParams", member.params), member.one("draws")
    samples = observables(draws, params.samples, "samples")
    queries = observables(draws, params.queries, "queries")
    matrix = covariances(samples.values, queries.values).times(-1.0)
    return Outcome(
        {
            **average_arrays("influence", matrix, draws),
            "sample": np.array(samples.names),
            "query": np.array(queries.names),
            "nbeta": draws["nbeta"],
            "num_samples": np.array(draws["num_samples"], dtype=np.int64),
        }
    )
