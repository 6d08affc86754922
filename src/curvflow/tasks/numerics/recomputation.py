"""Activations that a module would have computed again as gradients are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch.utils import checkpoint

# Of `torch.utils.checkpoint`, which `checkpoint` looks up at each call.
_NOT_REENTRANT = "_checkpoint_without_reentrant_generator"
_REENTRANT = "CheckpointFunction"

_lock = Lock()
_blocks = 0
_before: dict[str, Any] = {}


@contextmanager
def computed_once() -> Iterator[None]:
    """Let `torch.utils.checkpoint` keep activations within the block.

    They would be computed again behind a call, when its weights have left the module:
    at the module's own. With `use_reentrant=True` gradients have no graph, and such of
    parameters alone none at all.
    """
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            for name, plain in _PLAIN.items():
                _before[name] = getattr(checkpoint, name)
                setattr(checkpoint, name, plain)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                for name, before in _before.items():
                    setattr(checkpoint, name, before)


def _nothing_around(*_: object, **__: object) -> Iterator[None]:
    yield


class _Called:
    """A function's call in place of a `torch.autograd.Function` of it."""

    @staticmethod
    def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)


_PLAIN: dict[str, Any] = {_NOT_REENTRANT: _nothing_around, _REENTRANT: _Called}
