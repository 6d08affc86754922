"""A call as bytes: loading them makes the call.

So a scheduler and its workers are given a function that they have for certain, and what
they lack is an error of the task. A function that cannot be imported would end the
worker that is given it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any


class _Call:
    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]):
        self._function, self._arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return self._function, self._arguments


def as_bytes(function: Callable[..., object], *arguments: bytes | str) -> bytes:
    """Return what `pickle.loads` turns into the result of a call.

    Args:
        function: of a module.
        arguments: of the call.

    Returns:
        The bytes.
    """
    return pickle.dumps(_Call(function, arguments))
