"""Declaration of `probe.trace`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import (
    OPERATOR_INPUTS,
    UNITS,
    OperatorParams,
)
from curvflow.schemas.nodes import Array, Numbers


class TraceParams(OperatorParams):
    """Estimator of the trace, and the error at which it stops."""

    method: Literal["hutchinson", "hutch++", "xtrace"] = Field(
        "hutchinson",
        description="hutchinson: a product a vector; hutch++: three for two vectors, "
        "the range of the operator taken exactly; xtrace: two a vector, every vector "
        "used for both",
    )
    num_probes: int = Field(
        64, ge=4, description="random vectors drawn, S; with rel_sem at the first look"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of their entries"
    )
    rel_sem: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="go on doubling the vectors until the standard error is at most "
        "this part of the trace; null draws num_probes",
    )
    max_probes: int | None = Field(
        None, ge=4, description="most vectors, with rel_sem; null takes 64 num_probes"
    )

    @model_validator(mode="after")
    def _stops(self) -> TraceParams:
        if self.max_probes is not None and self.rel_sem is None:
            raise ValueError(
                "expected rel_sem with max_probes, got none. Remove max_probes, or "
                "set rel_sem, the error to reach."
            )
        if self.max_probes is not None and self.max_probes < self.num_probes:
            raise ValueError(
                f"expected max_probes of num_probes or more, got {self.max_probes}. "
                "Raise max_probes."
            )
        return self

    @property
    def most(self) -> int:
        """Vectors at the last look."""
        if self.rel_sem is None:
            return self.num_probes
        return self.max_probes or 64 * self.num_probes


def _truth(
    _: TraceParams, eigenvalues: Array, __: Mapping[str, Array]
) -> dict[str, Array]:
    return {"trace": eigenvalues.sum()}


KIND = Kind(
    name="probe.trace",
    version=2,
    summary="Trace of a curvature operator, whole and by layer, to an asked error.",
    params=TraceParams,
    returns=Numbers,
    outputs=(
        Variable("trace", "mean of the draws", units=UNITS),
        Variable("trace_sem", "standard error of the trace", units=UNITS),
        Variable(
            "trace_draws", "single estimates", ("probe",), units=UNITS, series=True
        ),
        Variable(
            "num_draws", "draws whose spread gives the standard error", dtype="int64"
        ),
        Variable("reached", "whether the error is as small as rel_sem", dtype="bool"),
        Variable("layer", "names of the parameter tensors", ("layer",), "str"),
        Variable(
            "layer_trace",
            "trace of the diagonal block of each parameter tensor, same vectors",
            ("layer",),
            units=UNITS,
        ),
        Variable(
            "layer_trace_sem", "standard error of each block", ("layer",), units=UNITS
        ),
        Variable("num_matvecs", "work: products with the operator", dtype="int64"),
    ),
    accelerated=True,
    inputs=OPERATOR_INPUTS,
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "hutchinson: (1/S) Σ z.Az; hutch++: tr(QᵀAQ) + the rest by z; xtrace: each "
        "z in turn for what the range of all others leaves"
    ),
    source=(
        "Hutchinson (1989), doi:10.1080/03610918908812806; Meyer, Musco, Musco and "
        "Woodruff (2021), doi:10.1137/1.9781611976496.16; Epperly, Tropp and Webber "
        "(2024), doi:10.1137/23M1548323"
    ),
    cost=(
        "products: num_probes of hutchinson, 1.5 times that of hutch++, twice that "
        "of xtrace; with rel_sem up to max_probes"
    ),
    example=TRAINED
    + """\
  trace: {use: probe.trace, weights: fit, operator: ggn, rel_sem: 0.05}
""",
    page="traces.md#the-trace",
)
