"""Power laws of measured numbers, and where they cross."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np

from curvflow.schemas.kinds.aggregate.scaling import KIND, ScalingParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.measurements import Measured, judged, relied_on
from curvflow.tasks.statistics.scaling_points import (
    Fitted,
    bootstrap_limits,
    crossings,
    fitted,
    measured_axes,
)


@computes_each("aggregate.scaling")
def scaling(member: Member, machine: Machine) -> Outcome:
    """Fit ln y = intercept + exponent ln x by least squares, for each label.

    Args:
        member: the nodes of the stages that measure y, and perhaps x.
        machine: not used.

    Returns:
        One row per label, and one per pair of labels.

    Raises:
        InputError: a variable is no single number of one stage, or the labels of the
            axis are no numbers.
    """
    params = cast("ScalingParams", member.params)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    x, y = measured_axes(params, nodes)
    of = fitted(params, nodes)
    rows = [_row(one, x, y, params) for one in of]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    pairs = list(crossings(of, params.confidence))
    declared = [v for v in KIND.outputs if v.dims == ("crossing",)]
    beside: Mapping[str, Array] = {
        v.name: np.array([pair[v.name] for pair in pairs], dtype=v.dtype)
        for v in declared
    }
    return Outcome(judged([y] if x is None else [x, y], {**table, **beside}))


def _row(
    one: Fitted, x: Measured | None, y: Measured, params: ScalingParams
) -> dict[str, object]:
    law, series = one.law, one.series
    low, high = law.limits(params.confidence)
    bootstrap_low, bootstrap_high = bootstrap_limits(one, params.confidence)
    below, above = (float(end[0]) for end in law.band(np.ones(1), params.confidence))
    x_N = series.x
    behind = f": {series.label}" if params.label else ""
    return {
        "quantity": f"{params.y} against {params.x or params.along}{behind}",
        "y_units": y.variable.units,
        "x_units": x.variable.units if x else "1",
        "exponent": law.exponent,
        "sem": law.sem,
        "low": low,
        "high": high,
        "bootstrap_low": bootstrap_low,
        "bootstrap_high": bootstrap_high,
        "prefactor": float(law.at(np.ones(1))[0]),
        "prefactor_low": below,
        "prefactor_high": above,
        "r_squared": law.r_squared,
        "residual_sd": law.residual_sd,
        "p_curved": law.p_curved,
        "least_x": float(x_N.min()) if len(x_N) else math.nan,
        "greatest_x": float(x_N.max()) if len(x_N) else math.nan,
        "count": len(x_N),
        "num_x": len(np.unique(x_N)),
        "nonpositive": series.nonpositive,
        "diverged": series.diverged,
        "nonfinite": series.nonfinite,
        "unconverged": series.unconverged,
    }
