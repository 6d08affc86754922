"""A data set that a function of the user's own returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError, first_line, nearest
from curvflow.schemas.kinds.data.factory import FactoryDataParams
from curvflow.schemas.kinds.shared.datasets import dataset_as
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.user_errors import not_returned
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
        InputError: the function cannot be called, fails, or returns no data set.
        MemoryError: it wants more than there is.
    """
    params = cast("FactoryDataParams", member.params)
    try:
        made = params.call()
    except (InputError, MemoryError):
        raise
    # User code raises whatever it likes.
    except Exception as error:
        message = not_returned("factory", params.factory, "arrays", error)
        raise InputError(message) from error
    return Outcome(dataset_as(params, _named(params.factory, made)))


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
    return {str(key): _arrays(str(key), given) for key, given in made.items()}


def _arrays(role: str, given: object) -> Array | dict[str, Array]:
    if isinstance(given, Mapping):
        return {str(n): _array(f"{role}.{n}", array) for n, array in given.items()}
    return _array(role, given)


def _array(role: str, given: object) -> Array:
    """Return what a function has made as an array.

    Raises:
        InputError: it is none, or entries of it are masked.
    """
    if isinstance(given, Tensor):
        dense = given.detach().cpu().to_dense()
        is_known = dense.dtype in (torch.float32, torch.float64)
        plain = dense if is_known or not dense.is_floating_point() else dense.float()
        tensor: Array = plain.resolve_conj().numpy()
        return tensor
    if masked := int(np.ma.getmaskarray(given).sum()) if np.ma.isMA(given) else 0:
        raise InputError(
            f"{role}: expected a number everywhere, got {masked} masked. Remove or "
            "fill them."
        )
    try:
        return np.asarray(given)
    except ValueError as error:  # of rows of several lengths
        raise InputError(
            f"{role}: expected an array, got {type(given).__name__} that is none "
            f"({first_line(error)}). Give all rows one shape."
        ) from error
