"""A data set that a function of the user's own returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.data.factory import FactoryDataParams
from curvflow.schemas.kinds.shared.datasets import dataset_as
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each

NAMES = ("inputs", "targets", "test_inputs", "test_targets")


@computes_each("data.factory")
def factory(member: Member, machine: Machine) -> Outcome:
    """Call the function and check what it returns.

    Args:
        member: the function and its arguments.
        machine: not used.

    Returns:
        The data set.

    Raises:
        InputError: the function cannot be called, or returns no data set.
    """
    params = cast("FactoryDataParams", member.params)
    arrays = _named(params.factory, params.call())
    return Outcome(dataset_as(params, arrays))


def _named(name: str, made: object) -> dict[str, Array | dict[str, Array]]:
    if isinstance(made, tuple | list) and len(made) in (2, 4):
        made = dict(zip(NAMES, made, strict=False))
    if not isinstance(made, Mapping):
        raise InputError(
            f"factory: expected {name} to return a mapping, or a tuple of 2 or 4 "
            f"arrays, got {type(made).__name__}. Change what it returns."
        )
    for key in made:
        if key not in NAMES:
            raise InputError(
                f"factory: expected {name} to return only {', '.join(NAMES)}, got "
                f"'{key}'. {nearest(str(key), NAMES)}"
            )
    if not {"inputs", "targets"} <= set(made) or len(made) == 3:
        raise InputError(
            f"factory: expected {name} to return inputs and targets, and test_inputs "
            f"and test_targets together, got {', '.join(map(str, made))}. Return "
            "two of them, or four."
        )
    return {str(key): _arrays(given) for key, given in made.items()}


def _arrays(given: object) -> Array | dict[str, Array]:
    if isinstance(given, Mapping):
        return {str(name): np.asarray(array) for name, array in given.items()}
    return np.asarray(given)
