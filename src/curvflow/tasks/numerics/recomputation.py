"""Activations that a module would have computed again as gradients are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, local
from typing import Any

from torch.utils import checkpoint

# Private, the same in torch 2.4 to 2.13; `checkpoint` looks them up at each call.
_NOT_REENTRANT = "_checkpoint_without_reentrant_generator"
_REENTRANT = "CheckpointFunction"

_lock = Lock()
_blocks = 0
_before: dict[str, Any] = {}


class _Within(local):
    """Number of blocks that a thread is in."""

    depth = 0


_within = _Within()


@contextmanager
def computed_once() -> Iterator[None]:
    """Let `torch.utils.checkpoint` keep activations within the block, in this thread.

    They would be computed again behind a call, when its weights have left the module:
    at the module's own. With `use_reentrant=True` gradients have no graph, and such of
    parameters alone none at all. No public name has a switch for it: two private ones
    are replaced while any thread is in a block; others find what was there before.
    """
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            for name, ours in _OURS.items():
                _before[name] = getattr(checkpoint, name)
                setattr(checkpoint, name, ours)
    _within.depth += 1
    try:
        yield
    finally:
        _within.depth -= 1
        with _lock:
            _blocks -= 1
            if not _blocks:
                for name, before in _before.items():
                    setattr(checkpoint, name, before)


def _nothing_around() -> Iterator[None]:
    yield


def _around(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Return what goes around a function's call: nothing within a block."""
    if _within.depth:
        return _nothing_around()
    around: Iterator[None] = _before[_NOT_REENTRANT](*args, **kwargs)
    return around


class _Called:
    """A function's call in place of a `torch.autograd.Function` of it."""

    @staticmethod
    def apply(function: Callable[..., Any], keeps: bool, *args: Any) -> Any:
        if _within.depth:
            return function(*args)
        return _before[_REENTRANT].apply(function, keeps, *args)


_OURS: dict[str, Any] = {_NOT_REENTRANT: _around, _REENTRANT: _Called}
