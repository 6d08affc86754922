"""Declaration of `probe.gershgorin`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import (
    FORMED_INPUTS,
    UNITS,
    OperatorParams,
)
from curvflow.schemas.nodes import Numbers


class GershgorinParams(OperatorParams):
    """Operator, and the largest matrix that is formed."""

    max_size: int = Field(
        2000, ge=1, description="largest dimension formed; beyond it is refused"
    )


def _bound(name: str, description: str, *dims: str) -> Variable:
    return Variable(name, description, dims, units=UNITS)


KIND = Kind(
    name="probe.gershgorin",
    version=1,
    summary="Bounds of the spectrum, whole and by layer, from absolute row sums.",
    params=GershgorinParams,
    returns=Numbers,
    outputs=(
        _bound("lower_bound", "no eigenvalue is below it"),
        _bound("upper_bound", "no eigenvalue is above it"),
        Variable("layer", "names of the parameter tensors", ("layer",), "str"),
        _bound(
            "layer_lower_bound",
            "no eigenvalue of the diagonal block of the parameter tensor is below it",
            "layer",
        ),
        _bound(
            "layer_upper_bound",
            "no eigenvalue of the diagonal block of the parameter tensor is above it",
            "layer",
        ),
        _bound(
            "layer_coupling",
            "largest absolute sum, over the rows of a block, of the entries outside it",
            "layer",
        ),
        Variable("num_matvecs", "work: products with the operator", dtype="int64"),
    ),
    accelerated=True,
    main=("lower_bound", "upper_bound"),
    inputs=FORMED_INPUTS,
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "minᵢ (aᵢᵢ - rᵢ) ≤ λ ≤ maxᵢ (aᵢᵢ + rᵢ) with rᵢ = Σⱼ |aᵢⱼ|, j ≠ i; of a "
        "layer i and j run over its parameters alone"
    ),
    source=(
        "Gerschgorin (1931), Izvestija Akademii Nauk SSSR 7; Horn and Johnson (2013), "
        "Matrix Analysis"
    ),
    cost="D products; no decomposition",
    example=TRAINED
    + """\
  bounds: {use: probe.gershgorin, weights: fit, operator: ggn}
""",
    page="traces.md#exact-values-of-small-operators",
)
