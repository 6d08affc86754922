"""Declaration of `probe.trace`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import LAYER_TRACES, UNITS
from curvflow.schemas.kinds.shared.preconditioners import preconditioner_input
from curvflow.schemas.kinds.shared.vectors import VectorsParams, vector_inputs
from curvflow.schemas.nodes import Array, Numbers


class TraceParams(VectorsParams):
    """Estimator of the trace, and the error at which it stops."""

    method: Literal["hutchinson", "hutch++", "xtrace", "auto"] = Field(
        "hutchinson",
        description="hutchinson: a product a vector; hutch++: three for two vectors, "
        "the range of the operator taken exactly; xtrace: two a vector, every vector "
        "used for both; auto: that of which num_probes vectors expect the fewest "
        "products until rel_sem",
    )

    @model_validator(mode="after")
    def _of_vectors(self) -> TraceParams:
        if self.probes_per == "batch" and self.method != "hutchinson":
            raise ValueError(
                f"probes_per batch cannot be combined with method {self.method}, which "
                "needs products over all data. Take hutchinson."
            )
        if self.method == "auto" and self.rel_sem is None:
            raise ValueError(
                "method auto cannot be combined with rel_sem null. Set rel_sem, the "
                "error to reach, or name a method."
            )
        return self


def _truth(
    _: TraceParams, eigenvalues: Array, __: Mapping[str, Array]
) -> dict[str, Array]:
    return {"trace": eigenvalues.sum()}


KIND = Kind(
    name="probe.trace",
    version=5,
    summary="Trace of a curvature operator, whole and by layer, to an asked error.",
    params=TraceParams,
    returns=Numbers,
    outputs=(
        Variable("trace", "mean of the draws", units=UNITS),
        Variable(
            "trace_sem",
            "standard error of the trace: of hutchinson and hutch++ as the products "
            "tell it, else as the draws spread",
            units=UNITS,
        ),
        Variable("trace_low", "lower end of an interval of 95 %", units=UNITS),
        Variable("trace_high", "upper end of an interval of 95 %", units=UNITS),
        Variable(
            "trace_vectors", "part of the error that the vectors have", units=UNITS
        ),
        Variable(
            "trace_batches",
            "part of the error of batches that were not multiplied; 0 after all data",
            units=UNITS,
        ),
        Variable(
            "trace_draws",
            "single estimates, of a vector each, or of the two of a batch",
            ("probe",),
            units=UNITS,
            series=True,
        ),
        Variable(
            "num_draws",
            "draws averaged, of a vector each, or of the two of a batch",
            dtype="int64",
        ),
        Variable("reached", "whether the error is as small as rel_sem", dtype="bool"),
        *LAYER_TRACES,
        Variable(
            "num_matvecs",
            "work: products with the operator; of batches, rounded up to as many over "
            "all data",
            dtype="int64",
        ),
        Variable("method", "what auto has taken", dtype="str", optional=True),
        Variable(
            "coefficient",
            "by which draws of the factors' trace were taken off, of preconditioner",
            optional=True,
        ),
        Variable(
            "variance_left",
            "variance of the trace relative to that without preconditioner",
            optional=True,
        ),
    ),
    accelerated=True,
    main=("trace", "trace_sem"),
    inputs={
        **vector_inputs(),
        "preconditioner": preconditioner_input("method", "probes_per", "batch_size"),
    },
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "hutchinson: (1/S) Σ z.Az; hutch++: tr(QᵀAQ) + the rest by z; xtrace: each "
        "z in turn for what the range of all others leaves; per batch: Σ_b (n_b/N) "
        "z_b.A_b z_b, two z_b for each batch; with factors K as preconditioner: (1/S) "
        "Σ z.Az - c (z.Kz - tr K), c of one half of the z learnt from the other"
    ),
    source=(
        "Hutchinson (1989), doi:10.1080/03610918908812806; Meyer, Musco, Musco and "
        "Woodruff (2021), doi:10.1137/1.9781611976496.16; Epperly, Tropp and Webber "
        "(2024), doi:10.1137/23M1548323; Owen (2013), section 8.9, of control variates"
    ),
    cost=(
        "products: num_probes of hutchinson, 1.5 times that of hutch++, twice that "
        "of xtrace; with rel_sem up to max_probes; of auto, half of num_probes more "
        "than the method it takes, at most. Per batch, num_probes products "
        "with the matrix of batch_size samples"
    ),
    example=TRAINED
    + """\
  trace: {use: probe.trace, weights: fit, operator: ggn, rel_sem: 0.05}
""",
    page="traces.md#the-trace",
)
