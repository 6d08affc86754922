"""Peak memory of a computation, counted on tensors that have shapes and no numbers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types
    """Counts the bytes of all tensors made within it while they live.

    Tensors that torch keeps for a derivative live as long as their graph does.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types
        self.peak = 0
        self._now = 0
        self._sizes: dict[int, int] = {}
        self._given = {one.untyped_storage()._cdata for one in given}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        number = storage._cdata
        if number in self._sizes or number in self._given:
            return
        self._sizes[number] = storage.nbytes()
        self._now += storage.nbytes()
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._drop, number)

    def _drop(self, number: int) -> None:
        self._now -= self._sizes.pop(number)


def peak_bytes(compute: Callable[[], object], given: Sequence[Tensor] = ()) -> int:
    """Return the bytes that a computation has at its peak, beyond what it was given.

    Args:
        compute: run once, on tensors of the device `meta`, which takes neither the
            memory nor the time; elsewhere it is counted as well, and runs in full.
        given: tensors that are held before, so that a view of them is nothing new.

    Returns:
        Bytes of all tensors that were made within and lived at once. What kernels use
        inside, and what an allocator keeps, is not counted.
    """
    meter = _Meter(given)
    with meter:
        kept = compute()
    del kept
    return meter.peak
