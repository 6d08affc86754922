"""One localization for several estimates."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.localization import LocalizationParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each

QUANTILES = {"largest": 1.0, "median": 0.5, "smallest": 0.0}


@computes_each("aggregate.localization")
def localization(member: Member, machine: Machine) -> Outcome:
    """Choose the localization that estimates are to share.

    Args:
        member: nodes of the stage whose localizations there are.
        machine: not used.

    Returns:
        The localization, the least and largest of theirs, and counts.

    Raises:
        InputError: no estimate has one, or they are at several temperatures.
    """
    params, nodes = cast("LocalizationParams", member.params), member.inputs["of"]
    there = [node for node in nodes if node.status == "ok"]
    if not there:
        raise InputError(
            "of: expected an estimate with a localization, got none. Name stages of "
            "probe.llc that succeeded."
        )
    gammas_N, nbetas_N = (
        np.array([float(node[name]) for node in there])
        for name in ("localization", "nbeta")
    )
    if not np.allclose(nbetas_N, nbetas_N[0], rtol=1e-9):
        raise InputError(
            f"over: expected estimates at one nbeta, got {nbetas_N.min():g} to "
            f"{nbetas_N.max():g}. Leave the axis that changes it out."
        )
    row: dict[str, Array] = {
        "quantity": np.array(["localization"]),
        "localization": np.quantile(gammas_N, [QUANTILES[params.take]]),
        "smallest": np.array([gammas_N.min()]),
        "largest": np.array([gammas_N.max()]),
        "count": np.array([len(there)]),
        "diverged": np.array([len(nodes) - len(there)]),
    }
    return Outcome(row)
