"""A second device that is not there: mixing its tensors with the CPU's raises.

Where a GPU exists, `-m gpu` runs on it; this finds on any machine what would not.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# No kernel of PyTorch's runs there.
ELSEWHERE = torch.device("meta")
# Those may take indices from the CPU.
INDEXING = ("aten.index.", "aten.index_put", "aten._index_put", "aten._unsafe_index.")


class MixedError(RuntimeError):
    """An operation took tensors of two devices."""


class Away(Tensor):
    """A tensor of the CPU that says it is elsewhere."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Away:
        """Wrap one."""
        away: Any = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=ELSEWHERE,
        )
        away.held = held
        return cast("Away", away)

    is_cuda = property(lambda self: True)

    def tolist(self) -> Any:
        """Return its numbers, as any device does."""
        return self.held.tolist()

    def numpy(self, **how: Any) -> Any:
        """Refuse: only the CPU's memory can be shared."""
        raise MixedError("numpy of a tensor that is elsewhere")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Compute on what is held."""
        return _computed(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


def _held(leaf: object) -> object:
    return leaf.held if isinstance(leaf, Away) else leaf


def _away(leaf: object) -> object:
    return Away(leaf) if isinstance(leaf, Tensor) else leaf


def _check(name: str, args: tuple, tensors: list[Tensor]) -> bool:
    """Return whether the operation is elsewhere; raise if it is in two places."""
    away = [tensor for tensor in tensors if isinstance(tensor, Away)]
    here = [
        tensor for tensor in tensors if tensor.dim() and not isinstance(tensor, Away)
    ]
    may_mix = name.startswith(INDEXING) and isinstance(args[0], Away)
    if away and here and not may_mix:
        shapes = [[tuple(tensor.shape) for tensor in each] for each in (away, here)]
        raise MixedError(f"{name}: shapes {shapes[0]} elsewhere, {shapes[1]} here")
    return bool(away)


def _computed(func, args, kwargs):
    name, kwargs = str(func), dict(kwargs)
    if name == "aten.copy_.default":
        _held(args[0]).copy_(_held(args[1]))
        return args[0]
    asked = kwargs.pop("device", None)
    if name == "aten._to_copy.default":
        is_away = isinstance(args[0], Away)
    else:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        is_away = _check(name, args, tensors)
    if asked is not None:
        is_away = torch.device(asked) == ELSEWHERE
    result = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    if name.split(".")[1].endswith("_") and isinstance(args[0], Away):
        return args[0]
    return tree_map(_away, result) if is_away else result


def _new(away: Away, data: Any, **how: Any) -> Tensor:
    """Return numbers that are elsewhere too, as `new_tensor` does."""
    return torch.tensor(data, **{"dtype": away.dtype, **how}, device=ELSEWHERE)


def _made(make):
    """Make tensors from numbers on the CPU first: `meta` would keep none of them."""

    def tensor(data, *, device=None, **how):
        operator = make(data, **how)
        return operator if device is None else operator.to(device)

    return tensor


@contextlib.contextmanager
def elsewhere():
    """Let `ELSEWHERE` hold numbers, for as long as this is open."""
    with (
        mock.patch.object(torch, "tensor", _made(torch.tensor)),
        mock.patch.object(Away, "new_tensor", _new),
        _Mode(),
    ):
        yield ELSEWHERE
