"""Inputs of a tile, read from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.flows.graph.jobs import MemberJob, TakenResult
from curvflow.flows.graph.lookup import taken_parts
from curvflow.schemas.keys import sha256
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Store

Loaded = dict[tuple[str, tuple[str, ...]], Mapping[str, Array]]


class LostInputError(StoreError):
    """A result that a tile takes turned out to be unreadable.

    Attributes:
        receipt: of the result.
    """

    def __init__(self, receipt: Receipt, reason: str) -> None:
        """Name the result and what is wrong with it."""
        super().__init__(reason)
        self.receipt = receipt


def load(store: Store, kind: Kind, jobs: Sequence[MemberJob]) -> list[Member]:
    """Read the inputs of a tile's members; a shared result is read once.

    Raises:
        LostInputError: a result taken cannot be read.
    """
    loaded: Loaded = {}
    taken = [
        result for job in jobs for several in job.inputs.values() for result in several
    ]
    taken += [job.shorter for job in jobs if job.shorter]
    for result in sorted(
        taken, key=lambda t: (t.receipt.payload or "", t.receipt.slot)
    ):
        if result.memo not in loaded:  # in the order of payloads, each opened once
            loaded[result.memo] = _arrays(store, result.receipt, result.parts)
    return [
        Member(
            job.params,
            {
                name: [_node_data(kind, name, result, loaded) for result in taken]
                for name, taken in job.inputs.items()
            },
            job.files,
            _resumed(job, loaded),
        )
        for job in jobs
    ]


def _resumed(job: MemberJob, loaded: Loaded) -> NodeData | None:
    if job.shorter is None:
        return None
    return _as_edge(NodeData, job.shorter, loaded[job.shorter.memo])


def _node_data(kind: Kind, name: str, taken: TakenResult, loaded: Loaded) -> NodeData:
    arrays = loaded[taken.memo]
    if not kind.vectorised:  # code of the user's own may write into what it is given
        arrays = {variable: array.copy() for variable, array in arrays.items()}
    return _as_edge(kind.inputs[name].edge, taken, arrays)


def _as_edge(
    edge: type[NodeData], taken: TakenResult, arrays: Mapping[str, Array]
) -> NodeData:
    # One result may stand at several nodes, each with its coordinates.
    return edge(
        stage=taken.stage,
        kind=taken.receipt.kind,
        coords=taken.coords,
        arrays=arrays,
        digest=sha256(taken_parts(taken.receipt, taken.parts)),
        status=taken.receipt.status,
        reason=taken.receipt.reason,
    )


def _arrays(
    store: Store, receipt: Receipt, names: Sequence[str]
) -> Mapping[str, Array]:
    parts = taken_parts(receipt, names)
    wanted = [name for name in names if _has(parts, name)]
    try:
        arrays = store.read(receipt, wanted) if receipt.payload else {}
    except CorruptPayloadError as error:
        raise LostInputError(receipt, str(error)) from error
    return {part.partition("@")[0]: array for part, array in arrays.items()}


def _has(parts: Mapping[str, str], name: str) -> bool:
    return any(part.partition("@")[0] == name.partition("@")[0] for part in parts)
