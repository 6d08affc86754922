"""Learning coefficients of samples, tokens and groups."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.observables.llc_pointwise import LlcPointwiseParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.llc.draws import number, posterior_of
from curvflow.tasks.llc.observables import average_arrays, observables
from curvflow.tasks.numerics.sampling.covariances import means
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.llc_pointwise")
def llc_pointwise(member: Member, machine: Machine) -> Outcome:
    """Divide a learning coefficient among the samples whose mean loss it is of.

    Args:
        member: `draws`, whose losses were kept.
        machine: not used.

    Returns:
        The coefficient of each, with standard errors, R-hat and effective draws.

    Raises:
        InputError: the draws have kept none of the losses named.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20.
    """
    params, draws = cast("LlcPointwiseParams", member.params), member.one("draws")
    observed = observables(draws, params.observables, "observables")
    rises_ICK = observed.values - observed.at_weights[:, None, None]
    averages = means(rises_ICK).times(number(draws, "nbeta"))
    return Outcome(
        {
            **average_arrays("llc", averages, draws),
            "observable": np.array(observed.names),
            "init_loss": observed.at_weights.numpy(),
            **posterior_of(draws),
        }
    )
