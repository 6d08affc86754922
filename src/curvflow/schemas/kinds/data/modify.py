"""Declaration of `data.modify`."""

from __future__ import annotations

from curvflow.schemas.datasets import OUTPUTS
from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.modifications import Modifications
from curvflow.schemas.nodes import Data


class ModifyParams(Modifications):
    """What is done to the data set taken, in the order of these fields."""


KIND = Kind(
    name="data.modify",
    version=1,
    summary="Another data set: some classes or samples, crops, noise, permutations.",
    params=ModifyParams,
    returns=Data,
    outputs=OUTPUTS,
    inputs={"data": Input(Data)},
    varying=("seed",),
)
