"""Functions that compute the tiles of kinds, by the kinds' names.

The function of a built-in kind is found by the file of its declaration: all that is
declared in `schemas/kinds/probes/trace.py` is computed in `tasks/probes/trace.py`,
which is loaded only when a tile runs. No list is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Protocol, TypeVar

import numpy as np

from curvflow.errors import UnknownNameError
from curvflow.schemas.kinds import declaration, find_kind
from curvflow.schemas.nodes import FAILED, Array, Member, Outcome


class Partial(Protocol):
    """Snapshots of a long computation, so that a kill costs a minute."""

    def load(self) -> Mapping[str, Array] | None:
        """Return what an earlier attempt at the very same tile kept, if anything."""

    def is_due(self) -> bool:
        """Return whether to keep now: time has passed, or the run was asked to end.

        Cheap: ask after every step.
        """

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Replace what was kept; the arrays may change once this returns.

        Raises:
            Stopped: the run was asked to end.
        """

    def tell(self, message: str) -> None:
        """Show a line on the terminal; it is no part of any result."""

    def record(self, message: str) -> None:
        """Show a line, and write it down in the receipts of the tile.

        It says how results came about, where that was chosen on the spot.
        """


class _Nowhere:
    """A partial of computations that are not resumed."""

    def load(self) -> None:
        return None

    def is_due(self) -> bool:
        return False

    def keep(self, arrays: Mapping[str, Array]) -> None:
        pass

    def tell(self, message: str) -> None:
        pass

    def record(self, message: str) -> None:
        pass


@dataclass(frozen=True)
class Machine:
    """Machine that a tile runs on; never part of a key.

    Attributes:
        device: `cpu`, or `cuda:0` and the like.
        hardware: what last bits depend on: the GPU's name, or the CPU's instructions.
        threads: how many PyTorch uses on the CPU; last bits depend on it, too.
        compiler: mode of torch.compile for training; `none` computes call by call.
        partial: where the tile keeps what it has so far.
        memory: bytes that the device has; 0 if that is not known.
    """

    device: str = "cpu"
    partial: Partial = field(default_factory=_Nowhere)
    hardware: str = ""
    threads: int = 1
    compiler: str = "none"
    memory: int = 0


TileFunction = Callable[[Sequence[Member], Machine], list[Outcome]]
NodeFunction = Callable[[Member, Machine], Outcome]
MemberBytes = Callable[[Member], int]
F = TypeVar("F", TileFunction, NodeFunction)


@dataclass(frozen=True)
class Implementation:
    """Computation of the tiles of one kind.

    Attributes:
        compute: from the members of a tile to their outcomes, in order.
        member_bytes: peak working memory per member, which sets the tile's width.
        data_bytes: the part of it that members with one data set have in common.
        copied_bytes: what each takes as well where members have different data sets,
            which are then copied side by side.
    """

    compute: TileFunction
    member_bytes: MemberBytes
    data_bytes: MemberBytes
    copied_bytes: MemberBytes


_implementations: dict[str, Implementation] = {}


def _one_megabyte(_: Member) -> int:
    return 1 << 20


def _nothing(_: Member) -> int:
    return 0


def computes(
    kind: str,
    *,
    member_bytes: MemberBytes = _one_megabyte,
    data_bytes: MemberBytes = _nothing,
    copied_bytes: MemberBytes = _nothing,
) -> Callable[[TileFunction], TileFunction]:
    """Register a function over a tile as the computation of a kind.

    Args:
        kind: name of the kind.
        member_bytes: estimate of the peak working memory per member, in bytes.
        data_bytes: the part of it that members with one data set have in common.
        copied_bytes: what each takes as well where members have different data sets.

    Returns:
        A decorator that leaves the function as it is.
    """

    def register(function: TileFunction) -> TileFunction:
        _implementations[kind] = Implementation(
            function, member_bytes, data_bytes, copied_bytes
        )
        return function

    return register


def computes_each(
    kind: str, *, member_bytes: MemberBytes = _one_megabyte
) -> Callable[[NodeFunction], NodeFunction]:
    """Register a function of one node, for what cannot be vectorised.

    Args:
        kind: name of the kind.
        member_bytes: as of `computes`.

    Returns:
        A decorator that leaves the function as it is.
    """

    def register(function: NodeFunction) -> NodeFunction:
        def each(members: Sequence[Member], machine: Machine) -> list[Outcome]:
            outcomes = [function(member, machine) for member in members]
            return [
                _with_failed(kind, member, outcome)
                for member, outcome in zip(members, outcomes, strict=True)
            ]

        _implementations[kind] = Implementation(each, member_bytes, _nothing, _nothing)
        return function

    return register


def _with_failed(kind: str, member: Member, outcome: Outcome) -> Outcome:
    """Add to a table that was made without failed nodes how many they are."""
    declared = find_kind(kind).output(FAILED) if member.absent else None
    if declared is None:
        return outcome
    rows = next(
        outcome.arrays[variable.name].shape
        for variable in find_kind(kind).outputs
        if variable.dims == declared.dims and variable.name in outcome.arrays
    )
    count = np.full(rows, len(member.all_absent), dtype=np.int64)
    return replace(outcome, arrays={**outcome.arrays, FAILED: count})


def home_of(kind: str) -> str:
    """Return the module whose function computes a built-in kind; "" for others.

    It has the place below `tasks/` that the declaration has below `schemas/kinds/`.
    """
    declared_in = declaration(kind)
    if declared_in is None:
        return ""
    return declared_in.__name__.replace("curvflow.schemas.kinds", "curvflow.tasks", 1)


def find(kind: str) -> Implementation:
    """Return the implementation of a kind, loading its file if need be.

    Args:
        kind: name of the kind.

    Returns:
        The registered implementation.

    Raises:
        UnknownNameError: no file of that name registers this kind.
        ModuleNotFoundError: its file needs a library that is not installed.
    """
    if kind not in _implementations and (home := home_of(kind)):
        import_module(home)
    try:
        return _implementations[kind]
    except KeyError:
        raise UnknownNameError(
            f"{kind}: expected a function that computes it, got none. Decorate one "
            "with @computes, or install the package that has it."
        ) from None
