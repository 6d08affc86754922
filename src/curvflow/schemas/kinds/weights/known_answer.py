"""Declaration of `weights.known_answer`."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.known_answers import KnownAnswerParams, known
from curvflow.schemas.nodes import Data, Weights
from curvflow.schemas.variables import Variable


class KnownAnswerWeightsParams(KnownAnswerParams):
    """The model, and the rank of the truth, as its data have them."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        known(self)
        return self


KIND = Kind(
    name="weights.known_answer",
    version=1,
    summary="True weights of a model whose learning coefficient is known.",
    params=KnownAnswerWeightsParams,
    returns=Weights,
    outputs=(
        Variable("llc_true", "learning coefficient at these weights, exact"),
        Variable("llc_multiplicity", "its multiplicity m", dtype="int64"),
        Variable("num_parameters", "number of parameters, D", dtype="int64"),
        Variable(
            "weights",
            "parameters as one vector, in the order of `network`",
            ("parameter",),
            units="parameter",
            bulk=True,
        ),
        Variable(
            "network", "the function and its loss, sse, as JSON", (), "str", bulk=True
        ),
    ),
    inputs={"data": Input(Data)},
    vectorised=False,
    loads={"model.kind": "curvflow.tasks.models"},
    carries=("model",),
)
