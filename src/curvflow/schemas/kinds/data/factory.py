"""Declaration of `data.factory`."""

from __future__ import annotations

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.datasets import OUTPUTS, TargetParams
from curvflow.schemas.kinds.shared.networks import Factory
from curvflow.schemas.kinds.shared.several_inputs import SEVERAL_INPUTS
from curvflow.schemas.nodes import Data


class FactoryDataParams(Factory, TargetParams):
    """The function that makes the data set.

    It returns (inputs, targets), or these with (test_inputs, test_targets), as a tuple
    or as a mapping with these names. Several inputs are a mapping of arrays.
    """


KIND = Kind(
    name="data.factory",
    version=1,
    summary="A data set that a function of the user's own returns.",
    params=FactoryDataParams,
    returns=Data,
    outputs=(*OUTPUTS, SEVERAL_INPUTS),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "(inputs, targets) = factory(**kwargs), with a test set if the function "
        "returns one"
    ),
    source="none: the data are the user's",
    cost="none: the function is called once",
    example="""\
study: example
stages:
  spirals: {use: data.factory, factory: "nets:spirals", kwargs: {turns: 2}}
""",
    page="how-to/own-data.md#what-a-function-returns",
)
