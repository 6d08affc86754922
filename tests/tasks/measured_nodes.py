"""Nodes as stages hand them on, for the tests of aggregates and figures."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from curvflow.schemas import kinds
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Label, Member, NodeData, Numbers, Outcome
from curvflow.schemas.params import Params
from curvflow.tasks.registry import Machine, find

NUMBERS = Kind(
    name="toy.numbers",
    version=1,
    summary="Numbers of every sort.",
    params=Params,
    returns=Numbers,
    outputs=(
        Variable("trace", "a trace", units="loss / parameter^2"),
        Variable("steps", "steps taken", dtype="int64", units="epoch"),
        Variable("converged", "whether it did", dtype="bool"),
        Variable("note", "a remark", dtype="str"),
        Variable("rank", "1 is the largest", ("rank",), "int64"),
        Variable("eigenvalues", "eigenvalues", ("rank",), units="loss / parameter^2"),
        Variable("layer", "tensors", ("layer",), "str"),
        Variable("layer_trace", "trace per tensor", ("layer",)),
        Variable("blocks", "any further dims", ("layer", "...")),
        Variable("epoch", "epochs", ("epoch",), "int64", "epoch", series=True),
        Variable("train_loss", "loss", ("epoch",), units="loss", series=True),
        Variable("picture", "bytes", ("byte",), "uint8", file=".png"),
    ),
)
OTHER = Kind(
    name="toy.other",
    version=1,
    summary="A stage with a variable of the same name.",
    params=Params,
    returns=Numbers,
    outputs=(
        Variable("trace", "another trace"),
        Variable("curvature", "a number", units="1 / parameter"),
    ),
)


@contextmanager
def toy_kinds() -> Iterator[None]:
    added = {kind.name: kind for kind in (NUMBERS, OTHER)}
    with mock.patch.dict(kinds._added, added):
        yield


def node(
    coords: Mapping[str, Label],
    *,
    stage: str = "probe",
    kind: str = "toy.numbers",
    diverged: bool = False,
    **arrays: Any,
) -> Numbers:
    """Return a result; what is not given is zero or empty, and lacking if diverged."""
    outputs = [] if diverged else kinds.find_kind(kind).outputs
    zeros = {v.name: np.zeros([0] * len(v.dims), v.dtype) for v in outputs}
    return Numbers(
        stage=stage,
        kind=kind,
        coords=coords,
        arrays=zeros | {name: np.asarray(value) for name, value in arrays.items()},
        digest="",
        status="diverged" if diverged else "ok",
    )


def compute(kind: str, of: list[NodeData], **params: Any) -> Outcome:
    """Compute one node of a kind as the engine would."""
    member = Member(kinds.find_kind(kind).params(**params), {"of": of})
    (outcome,) = find(kind).compute([member], Machine())
    return outcome
