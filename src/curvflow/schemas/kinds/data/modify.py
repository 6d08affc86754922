"""Declaration of `data.modify`."""

from __future__ import annotations

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.kinds.shared.modifications import Modifications, known_samples
from curvflow.schemas.kinds.shared.several_inputs import SEVERAL_INPUTS
from curvflow.schemas.nodes import Data


class ModifyParams(Modifications):
    """Changes of the data set taken, in the order of these fields."""


KIND = Kind(
    name="data.modify",
    version=1,
    summary="Another data set: some classes or samples, crops, noise, permutations.",
    params=ModifyParams,
    returns=Data,
    outputs=(*OUTPUTS, SEVERAL_INPUTS),
    inputs={"data": Input(Data)},
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "the data set taken, changed step by step in the order of the parameters below"
    ),
    source="none: each step is its own definition",
    cost="none: one pass over the arrays",
    example="""\
study: example
axes: {share: [0.0, 0.2, 0.4]}
stages:
  digits: {use: data.digits}
  noisy: {use: data.modify, data: digits, num_train: 500,
          label_noise: "${share}"}
""",
    page="data.md#modifications",
)
