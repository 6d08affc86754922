"""Declaration of `weights.known_answer`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.known_answers import (
    KnownAnswerParams,
    known,
    refuse_rank_above,
    same_truth,
)
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.nodes import Data, Weights
from curvflow.schemas.params import Params


class KnownAnswerWeightsParams(KnownAnswerParams):
    """The model, and the rank of the truth, as its data have them."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        model = known(self)
        if isinstance(model, DeepLinear):
            refuse_rank_above(min(model.hidden, default=self.rank), self.rank)
        return self


def _another_truth(
    params: KnownAnswerWeightsParams, name: str, data: Params
) -> Iterator[ParamProblem]:
    """Yield a rank or a model that cannot be that of the data."""
    if not isinstance(data, KnownAnswerParams):
        return
    expected, got = (same_truth(known(stated)) for stated in (data, params))
    if expected != got:
        message = f"expected {expected}, as of '{name}', got {got}"
        yield ("model",), message, "Give both the same model."
    if data.rank != params.rank:
        message = f"expected the rank {data.rank} of '{name}', got {params.rank}"
        yield ("rank",), message, "Give both the same rank."


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
    main=("llc_true", "llc_multiplicity"),
    inputs={"data": Input(Data, lacking=_another_truth)},
    vectorised=False,
    loads={"model.module": "curvflow.tasks.models"},
    carries=("model",),
)

EXPLANATION = Explanation(
    formula="llc_true = λ, where the volume of {K ≤ ε} goes as c ε^λ (ln 1/ε)^(m-1)",
    source=(
        "Aoyagi and Watanabe (2005), doi:10.1016/j.neunet.2005.03.014; Aoyagi "
        "(2024), doi:10.1016/j.neunet.2024.106132; Watanabe (2009), Algebraic "
        "Geometry and Statistical Learning Theory"
    ),
    cost="none: λ and m are exact fractions of the sizes",
    example="""\
study: example
stages:
  population: {use: data.known_answer,
               model: {kind: quadratic_well, eigenvalues: [1.0, 2.0]}}
  truth: {use: weights.known_answer, data: population,
          model: {kind: quadratic_well, eigenvalues: [1.0, 2.0]}}
""",
    page="known-answers.md#coefficients",
    units={"rank": "1"},
)
