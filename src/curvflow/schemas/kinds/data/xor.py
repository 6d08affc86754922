"""Declaration of `data.xor`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.datasets import OUTPUTS
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params


class XorParams(Params):
    """How the two classes are written."""

    labels: Literal["sign", "index"] = Field(
        "sign", description="targets -1 and 1 as values, or class labels 0 and 1"
    )


KIND = Kind(
    name="data.xor",
    version=1,
    summary="The four points (+-1, +-1); 1 where the signs differ. No test set.",
    params=XorParams,
    returns=Data,
    outputs=OUTPUTS,
)
