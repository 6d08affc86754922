"""Hold results to their declaration before anybody can depend on them."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kind import ELLIPSIS, Kind, Variable
from curvflow.schemas.nodes import Array, Outcome


def checked(kind: Kind, outcome: Outcome) -> Outcome:
    """Return an outcome that is as its kind declares it.

    Args:
        kind: the declaration.
        outcome: what was computed.

    Returns:
        The same outcome.

    Raises:
        InputError: a variable lacks, is not declared, or has another type, number of
            dimensions or size than declared.
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
