"""Declaration of `probe.norms`."""

from __future__ import annotations

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Numbers, Weights
from curvflow.schemas.params import Params


class NormsParams(Params):
    """There is nothing to choose."""


KIND = Kind(
    name="probe.norms",
    version=1,
    summary="Norms of the weights, whole and by parameter tensor.",
    params=NormsParams,
    returns=Numbers,
    outputs=(
        Variable("norm_l2", "Euclidean norm of all parameters", units="parameter"),
        Variable(
            "norm_tensor_sum",
            "sum of the Frobenius norms of the parameter tensors",
            units="parameter",
        ),
        Variable("max_abs", "largest magnitude of a parameter", units="parameter"),
        Variable("layer", "names of the parameter tensors", ("layer",), "str"),
        Variable(
            "layer_norm",
            "Frobenius norm of each parameter tensor",
            ("layer",),
            units="parameter",
        ),
    ),
    main=("norm_l2",),
    inputs={"weights": Input(Weights)},
)

EXPLANATION = Explanation(
    formula="‖w‖₂, Σ_l ‖W_l‖_F over parameter tensors, max |w_j|",
    source="none: the formula is the definition",
    cost="none: the weights alone are read",
    example=TRAINED
    + """\
  norms: {use: probe.norms, weights: fit}
""",
    page="study.md#checkpoints",
)
