"""Power laws of measured numbers, and their crossovers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np

from curvflow.schemas.kinds.aggregate.scaling import KIND, ScalingParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.measurements import (
    Measurement,
    drop_unjudged_counts,
    mask_unconverged,
)
from curvflow.tasks.statistics.scaling_points import (
    FittedLaw,
    bootstrap_limits,
    crossings,
    fit_laws,
    x_and_y,
)


@computes_each("aggregate.scaling")
def scaling(member: Member, machine: Machine) -> Outcome:
    """Fit ln y = intercept + exponent ln x by least squares, for each label.

    Args:
        member: nodes of the stages that measure y, and x unless it is an axis.
        machine: not used.

    Returns:
        A row per label, and a row per pair of labels.

    Raises:
        InputError: a variable is not a scalar of one stage, or the labels of the axis
            are not numbers.
    """
    params = cast("ScalingParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    x, y = x_and_y(params, nodes)
    laws = fit_laws(params, nodes)
    rows = [_row(law, x, y, params) for law in laws]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    pairs = list(crossings(laws, params.confidence))
    declared = [v for v in KIND.outputs if v.dims == ("crossing",)]
    crossing_table: Mapping[str, Array] = {
        v.name: np.array([pair[v.name] for pair in pairs], dtype=v.dtype)
        for v in declared
    }
    return Outcome(
        drop_unjudged_counts([y] if x is None else [x, y], {**table, **crossing_table})
    )


def _row(
    fitted: FittedLaw, x: Measurement | None, y: Measurement, params: ScalingParams
) -> dict[str, object]:
    law, series = fitted.law, fitted.series
    low, high = law.limits(params.confidence)
    bootstrap_low, bootstrap_high = bootstrap_limits(fitted, params.confidence)
    below, above = (float(end[0]) for end in law.band(np.ones(1), params.confidence))
    x_N = series.x
    label_text = f": {series.label}" if params.label else ""
    return {
        "quantity": f"{params.y} against {params.x or params.along}{label_text}",
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
