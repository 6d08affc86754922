"""Checks of outcomes before they are published, and remedies for large nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kind import ELLIPSIS, Kind, Variable
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.params import Params
from curvflow.tasks.registry import find


def checked(kind: Kind, outcome: Outcome) -> Outcome:
    """Return an outcome once it is as its kind declares it.

    Raises:
        InputError: a variable is missing, is not declared, or has another type, number
            of dimensions or size than declared.
    """
    known = {variable.name: variable for variable in kind.outputs}
    for name in outcome.arrays.keys() - known.keys():
        raise InputError(f"{kind.name}: expected declared variables, got '{name}'")
    needed = [name for name, variable in known.items() if not variable.optional]
    lacking = [name for name in needed if name not in outcome.arrays]
    if lacking and outcome.status == "ok":
        got = ", ".join(outcome.arrays) or "nothing"
        raise InputError(
            f"{kind.name}: expected the declared variable {lacking[0]}, got {got}"
        )
    sizes: dict[str, int] = {}
    for name, array in outcome.arrays.items():
        _check_type(kind.name, known[name], array)
        _check_shape(kind.name, known[name], array, sizes)
    return outcome


def _check_type(kind: str, variable: Variable, array: Array) -> None:
    if not isinstance(array, np.ndarray | np.generic):
        got = type(array).__name__
        raise InputError(f"{kind}: expected {variable.name} as an array, got {got}")
    is_text = array.dtype.kind in "UOT"
    fits = is_text if variable.dtype == "str" else array.dtype == variable.dtype
    if not fits:
        expected = f"{variable.name} of {variable.dtype}"
        raise InputError(f"{kind}: expected {expected}, got {array.dtype}")


def _check_shape(
    kind: str, variable: Variable, array: Array, sizes: dict[str, int]
) -> None:
    dims = variable.dims
    named = [dim for dim in dims if dim != ELLIPSIS]
    fits = array.ndim == len(dims) or (ELLIPSIS in dims and array.ndim >= len(named))
    if not fits:
        raise InputError(
            f"{kind}: expected {variable.name} with the dimensions "
            f"({', '.join(dims)}), got an array of shape {array.shape}"
        )
    for dim, size in zip(named, array.shape, strict=False):
        if sizes.setdefault(dim, size) != size:
            raise InputError(
                f"{kind}: expected {variable.name} with {sizes[dim]} entries along "
                f"{dim}, got {size}"
            )


# Remedies that save less than this part are not named, and three are enough.
LEAST, MOST = 0.1, 3


def remedies(kind: Kind, member: Member) -> str:
    """Return what would make a node smaller, in a sentence, the most effective first.

    Each parameter that can be lowered is halved, or switched off, and the memory
    estimated anew; what makes no difference is not named.
    """
    implementation = find(kind.name)
    whole, data = implementation.member_bytes(member), implementation.data_bytes(member)
    saved: dict[str, float] = {"take fewer samples": data / 2}
    for words, name, value in _smaller(member.params):
        params = member.params.model_copy(update={name: value})
        with suppress(Exception):  # what no estimate can be made of is no remedy
            saved[words] = whole - implementation.member_bytes(
                replace(member, params=params)
            )
    worth = [words for words in saved if saved[words] >= LEAST * whole]
    best = sorted(worth, key=lambda words: -saved[words])[:MOST]
    sentence = ", ".join(
        [*(best or ["take a smaller model"]), "or take another machine."]
    )
    return sentence[0].upper() + sentence[1:]


def _smaller(params: Params) -> Iterator[tuple[str, str, Any]]:
    """Yield a remedy, the parameter's name, and a smaller value."""
    for name, field in type(params).model_fields.items():
        value = getattr(params, name)
        if value is True:
            yield f"set {name}: false", name, False
        elif type(value) is int:
            least = max([1, *(getattr(mark, "ge", 1) for mark in field.metadata)])
            if least < value:
                yield f"lower {name}", name, max(least, value // 2)
        elif name == "dtype" and value == "float64":
            yield "set dtype: float32", name, "float32"
