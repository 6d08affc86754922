"""Functions of a tensor as the operations that it enters, recorded to be run again.

What the tensor does not enter is computed once, while recording. Of operations that are
the same twice one is run, and those that the result does not need are left out.
Recording takes little more than one call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

Function = Callable[[Tensor], Tensor]

# Operations that make a long vector of parts, by what they are recorded as. As the last
# ones they write into memory at hand.
_JOINS: dict[Any, Callable[..., Tensor]] = {torch.ops.aten.cat.default: torch.cat}

# Zeros without memory: what torch makes of them within a mode ends the process (2.13).
_ZEROS = torch.ops.aten._efficientzerotensor.default

# Where a tensor bears the mark of its recorder and its number.
NUMBER = "_number_on_tape"


class CannotRecordError(RuntimeError):
    """An operation does what a tape cannot do again."""


@dataclass(frozen=True)
class _Slot:
    """The place of a tensor that the argument enters."""

    number: int


@dataclass(frozen=True)
class _Step:
    """One operation.

    Attributes:
        run: the operation.
        args: with slots.
        kwargs: with slots.
        into: numbers of the tensors returned; None for those not needed.
        last: numbers that no later step takes.
    """

    run: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    into: Sequence[int | None]
    last: frozenset[int] = frozenset()

    @property
    def taken(self) -> frozenset[int]:
        """Numbers of the tensors taken."""
        leaves = tree_leaves((self.args, self.kwargs))
        return frozenset(leaf.number for leaf in leaves if isinstance(leaf, _Slot))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types
    """Writes down the operations that a tensor enters.

    All tensors are numbered; those of equal value, made by the same operation of the
    same tensors, are given the same number.
    """

    def __init__(self, argument: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types
        self.steps: list[_Step] = []
        # Not the recorder: a constant shall not keep what it is not part of.
        self._mark = object()
        self._entered = {0}
        self._seen: dict[Hashable, Sequence[int | None]] = {}
        self._outside = {id(argument): (argument, 0)}
        self._count = 1

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is _ZEROS:
            func = torch.ops.aten.zeros.default
        out = func(*args, **(kwargs or {}))
        leaves, form = tree_flatten((args, dict(kwargs or {})))
        held = [self._slotted(leaf) for leaf in leaves]
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if any(isinstance(argument, _Slot) for argument in held):
            _check(func, out)
        elif func._schema.is_mutable:
            self._seen.clear()
            return out
        key = func, form, tuple(self._identity(leaf) for leaf in leaves)
        if is_random or key not in self._seen:
            self._seen[key] = self._written(func, tree_unflatten(held, form), out)
        for tensor, number in zip(tree_leaves(out), self._seen[key], strict=True):
            if isinstance(tensor, Tensor):
                setattr(tensor, NUMBER, (self._mark, number))
        return out

    def slot(self, tensor: Tensor) -> _Slot | None:
        """Return the place of a tensor if the argument enters it."""
        number = self._number(tensor)
        return _Slot(number) if number in self._entered else None

    def _written(self, func: Any, took: tuple[Any, Any], out: Any) -> list[int | None]:
        outs = [isinstance(leaf, Tensor) for leaf in tree_leaves(out)]
        into = [self._next() if is_tensor else None for is_tensor in outs]
        step = _Step(func, *took, into)
        if step.taken:
            self._entered |= {number for number in into if number is not None}
            self.steps.append(step)
        return into

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _number(self, tensor: Tensor) -> int:
        maker, number = getattr(tensor, NUMBER, (None, 0))
        if maker is self._mark:
            return int(number)
        # Held, so that no other can have its id.
        return self._outside.setdefault(id(tensor), (tensor, self._next()))[1]

    def _slotted(self, leaf: Any) -> Any:
        return (self.slot(leaf) or leaf) if isinstance(leaf, Tensor) else leaf

    def _identity(self, leaf: Any) -> Hashable:
        if isinstance(leaf, Tensor):
            return self._number(leaf)
        return type(leaf), repr(leaf)


def _check(func: Any, out: Any) -> None:
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    gives_numbers = any(not isinstance(t, Tensor | None) for t in tree_leaves(out))
    if func._schema.is_mutable or is_random or gives_numbers:
        raise CannotRecordError(f"{func} writes, draws, or returns no tensor")


class Tape:
    """A recorded function, for arguments of the shape it was recorded with."""

    def __init__(self, steps: Sequence[_Step], result: Tensor | _Slot) -> None:
        self._steps, self._result = steps, result

    def __call__(self, argument: Tensor, into: Tensor | None = None) -> Tensor:
        """Return the function's value, in `into` if that is given."""
        if isinstance(self._result, Tensor):
            return self._result if into is None else into.copy_(self._result)
        values = {0: argument}
        with torch.no_grad():
            for step in self._steps:
                args = [_filled(leaf, values) for leaf in step.args]
                kwargs = {k: _filled(leaf, values) for k, leaf in step.kwargs.items()}
                if into is not None and step.run in _JOINS and step is self._steps[-1]:
                    return _JOINS[step.run](*args, **kwargs, out=into)
                outs = tree_leaves(step.run(*args, **kwargs))
                numbered = zip(step.into, outs, strict=True)
                values.update({n: out for n, out in numbered if n is not None})
                for number in step.last:
                    del values[number]
        product = values[self._result.number]
        return product if into is None else into.copy_(product)


def _filled(leaf: Any, values: Mapping[int, Tensor]) -> Any:
    if isinstance(leaf, _Slot):
        return values[leaf.number]
    return [_filled(part, values) for part in leaf] if isinstance(leaf, list) else leaf


def record(function: Function, like: Tensor) -> tuple[Tape, Tensor]:
    """Call a function that takes the same way whatever its argument holds.

    Args:
        function: of one tensor; what else it reads must not change.
        like: an argument; it is called with a copy.

    Returns:
        The function, for arguments of this shape, without derivatives, and its value.

    Raises:
        CannotRecordError: an operation writes into a tensor, draws at random, or gives
            numbers to the program, by what depends on the argument.
    """
    argument = like.detach().clone()
    with _Recorder(argument) as recorder:
        # Operations that write are replaced by others that do not.
        result = functionalize(function)(argument)
    slot = recorder.slot(result)
    if slot is None:
        return Tape((), result), result
    needed, steps = {slot.number}, list[_Step]()
    for step in reversed(recorder.steps):
        into = [number if number in needed else None for number in step.into]
        if any(number is not None for number in into):
            last = frozenset(step.taken - needed)
            needed |= last
            steps.append(_Step(step.run, step.args, step.kwargs, into, last))
    return Tape(steps[::-1], slot), result
