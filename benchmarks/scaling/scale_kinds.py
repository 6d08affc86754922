"""Kinds whose tiles take a known time: arithmetic, sleep, or next to none.

A node that differs from its siblings in `seed` shares a tile with them; one that
differs in `alone` has a tile of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from arithmetic import (  # type: ignore[import-not-found] # lies beside the studies
    burnt,
)

from curvflow.schemas import kinds
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Member, Numbers, Outcome
from curvflow.schemas.params import Params
from curvflow.tasks.registry import Machine, TileFunction, computes


class Point(Params):
    """What tells nodes apart."""

    seed: int = 0
    alone: int = 0


class Burning(Point):
    """How much arithmetic a node is."""

    rounds: int = 1


class Napping(Point):
    """How long a node sleeps."""

    seconds: float = 0.1


def declared(
    name: str, params: type[Params], inputs: Sequence[str] = ()
) -> Callable[[TileFunction], TileFunction]:
    """Make a function over a tile a kind that `use: "scale_kinds:name"` names."""

    def register(function: TileFunction) -> TileFunction:
        kind = Kind(
            name=f"scale.{name}",
            version=1,
            summary=str(function.__doc__),
            params=params,
            returns=Numbers,
            outputs=(Variable("value", "a number"),),
            inputs={name: Input(Numbers) for name in inputs},
            varying=("seed",),
            home=f"{function.__module__}:{function.__name__}",
        )
        kinds.add(kind)
        computes(kind.name)(function)
        function.kind = kind  # type: ignore[attr-defined] # read by `use: module:name`
        return function

    return register


@declared("burn", Burning)
def burn(members: Sequence[Member], _: Machine) -> list[Outcome]:
    """Compute once per tile: one node alone comes as two that are the same."""
    value = burnt(cast("Burning", members[0].params).rounds)
    return [Outcome({"value": np.array(value)}) for _ in members]


@declared("nap", Napping)
def nap(members: Sequence[Member], _: Machine) -> list[Outcome]:
    """Sleep once per tile."""
    time.sleep(cast("Napping", members[0].params).seconds)
    return [Outcome({"value": np.array(0.0)}) for _ in members]


@declared("first", Point)
def first(members: Sequence[Member], _: Machine) -> list[Outcome]:
    """Say which node it is; results of equal content would be one to their takers."""
    points = [cast("Point", member.params) for member in members]
    return [Outcome({"value": np.array(1.0 + p.seed + p.alone)}) for p in points]


@declared("second", Point, inputs=("of",))
def second(members: Sequence[Member], _: Machine) -> list[Outcome]:
    """Add one to the number taken."""
    return [Outcome({"value": one.one("of")["value"] + 1}) for one in members]
