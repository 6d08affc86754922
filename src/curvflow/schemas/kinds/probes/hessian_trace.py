"""Declaration of `probe.hessian_trace`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import LAYER_TRACES, UNITS, ModeParams
from curvflow.schemas.nodes import Array, Data, Numbers, Weights


class HessianTraceParams(ModeParams):
    """Number and law of the random vectors."""

    num_probes: int = Field(64, ge=2, description="random vectors drawn, S")
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of their entries"
    )
    seed: int = Field(
        0, ge=0, description="seed of the draw; equal seeds draw equal vectors"
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )


def _truth(_: Any, eigenvalues: Array, __: Mapping[str, Array]) -> dict[str, Array]:
    return {"trace": eigenvalues.sum()}


KIND = Kind(
    name="probe.hessian_trace",
    version=4,
    summary="Trace of the Hessian of the mean training loss, by random vectors.",
    params=HessianTraceParams,
    returns=Numbers,
    outputs=(
        Variable("trace", "mean of z.Hz over the random vectors z", units=UNITS),
        Variable("trace_sem", "standard error, from all Hz", units=UNITS),
        Variable("trace_low", "lower end of an interval of 95 %", units=UNITS),
        Variable("trace_high", "upper end of an interval of 95 %", units=UNITS),
        Variable("trace_draws", "each z.Hz", ("probe",), units=UNITS, series=True),
        *LAYER_TRACES,
        Variable("num_matvecs", "work: products with the Hessian", dtype="int64"),
    ),
    accelerated=True,
    main=("trace", "trace_sem"),
    inputs={
        "weights": Input(Weights),
        "data": Input(Data, follows="weights", by_rows=True),
    },
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula="tr H ≈ (1/S) Σ z.Hz over S random vectors z",
    source="Hutchinson (1989), doi:10.1080/03610918908812806",
    cost="num_probes products",
    example=TRAINED
    + """\
  trace: {use: probe.hessian_trace, weights: fit, num_probes: 32}
""",
    page="traces.md#the-trace",
)
