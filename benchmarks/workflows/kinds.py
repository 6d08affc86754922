"""The two stages as kinds of curvflow."""

from __future__ import annotations

import nodes  # type: ignore[import-not-found] # lies beside the study
import numpy as np
from pydantic import Field

import curvflow
from curvflow.schemas.nodes import Array, Numbers

VALUES = curvflow.Variable("values", "numbers that mean nothing", ("place",))


class First(curvflow.Params):
    """What a node of the first stage depends on."""

    rate: float = Field(description="a number")
    seed: int = Field(description="another")
    repeat: int = Field(description="a third")


@curvflow.stage("probe.first", version=1, outputs=[VALUES])
def first(params: First) -> dict[str, Array]:
    return {"values": np.array(nodes.first(params.rate, params.seed, params.repeat))}


@curvflow.stage("probe.second", version=1, outputs=[VALUES])
def second(source: Numbers) -> dict[str, Array]:
    return {"values": np.array(nodes.second(source["values"]))}
