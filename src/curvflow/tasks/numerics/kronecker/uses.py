"""Uses of parameters: what goes into a layer, what comes out, and how they meet.

The gradient of a weight by one sample is a sum over positions of outer products l r':
of a dense layer l is what comes back through its outputs, and r what went in.

Letters of shapes beside M models and N samples: T positions of a sample, such as tokens
or pixels, G groups of a weight, O rows and I columns of a group.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.errors import InputError


class Form(Protocol):
    """The way in which a layer's inputs meet its weight.

    Attributes:
        is_left: whether what comes back is the left side of outer products, so that
            what went in is the right one.
    """

    @property
    def is_left(self) -> bool: ...  # noqa: D102 -- see Attributes

    def given(
        self,
        inputs: Tensor,
        shape: Sequence[int],
        samples: int,
        *,
        has_ones: bool = False,
    ) -> Tensor:
        """Return what went in, for a weight of a shape, (M, N, T, G, O or I).

        Args:
            inputs: of the use.
            shape: of the weight.
            samples: N.
            has_ones: whether ones follow, as the inputs of a bias.
        """

    def returned(self, deltas: Tensor, shape: Sequence[int], samples: int) -> Tensor:
        """Return what comes back through the outputs, (M, N, T, G, O or I)."""

    def divides(self, inputs: Tensor, shape: Sequence[int], samples: int) -> bool:
        """Return whether what went in may be rows of so many samples, by its size."""


# Places of a sample, times this, up to which a moment of so many columns is taken of
# all samples at once: beyond, those of each are less work than their norms apart.
FEW = 2


def _with_ones(rows: Tensor) -> Tensor:
    """Return rows with a one behind each, the inputs of a bias."""
    # One copy does for all models; products of positions would copy it again.
    is_shared = rows.stride(0) == 0 and rows.shape[2] == 1
    rows = rows[:1] if is_shared else rows
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


@dataclass(frozen=True)
class Rows:
    """A dense layer (O, I) on each row of inputs, (M, N, ..., I).

    Positions may be folded into the samples, each sample's one after another.

    Attributes:
        tokens_first: rows are (M, T, N, I), which may be folded as well.
    """

    tokens_first: bool = False
    is_left: bool = True

    def given(
        self,
        inputs: Tensor,
        shape: Sequence[int],
        samples: int,
        *,
        has_ones: bool = False,
    ) -> Tensor:
        """Return the rows, (M, N, T, 1, I)."""
        rows = self._rows(inputs, samples, shape[1])
        return _with_ones(rows) if has_ones else rows

    def returned(self, deltas: Tensor, shape: Sequence[int], samples: int) -> Tensor:
        """Return the deltas, (M, N, T, 1, O)."""
        return self._rows(deltas, samples, shape[0])

    def divides(self, inputs: Tensor, shape: Sequence[int], samples: int) -> bool:
        """Return whether there are as many rows for each sample."""
        return inputs[0].numel() % (samples * shape[1]) == 0

    def _rows(self, rows: Tensor, samples: int, size: int) -> Tensor:
        if self.tokens_first:
            rows = rows.reshape(len(rows), -1, samples, 1, size)
            return rows.transpose(1, 2)
        return rows.reshape(len(rows), samples, -1, 1, size)


@dataclass(frozen=True)
class Windows:
    """A convolution of inputs (M, N, C, *sides), of any number of sides.

    Attributes:
        stride: steps between windows, of each side.
        padding: zeros before and behind each side.
        dilation: steps within a window, of each side.
        groups: of channels, each convolved by itself.
    """

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    is_left: bool = True

    def given(
        self,
        inputs: Tensor,
        shape: Sequence[int],
        samples: int,
        *,
        has_ones: bool = False,
    ) -> Tensor:
        """Return what each window sees, (M, N, T, G, I).

        In memory places stand side by side, as they do in images: to bring windows
        together there takes ten times as long.
        """
        seen = self._windows(inputs, shape)
        models, count, groups, *each = seen.shape
        kernel, places = each[: len(shape) - 1], each[len(shape) - 1 :]
        size, num_places = math.prod(kernel), math.prod(places)
        # Where few places make moments of all samples at once, these meet in memory.
        is_joined = models == groups == 1 and num_places * FEW <= size
        order = (0, 2, 3, 1, 4) if is_joined else (0, 2, 1, 3, 4)
        sizes = models, count, groups, size + has_ones, num_places
        laid_out = seen.new_empty([sizes[dim] for dim in order])
        rows = laid_out.permute([order.index(dim) for dim in range(5)])
        apart = torch.unflatten(rows[:, :, :, :size], 4, places)
        torch.unflatten(apart, 3, kernel).copy_(seen)
        if has_ones:
            rows[:, :, :, size:] = 1
        return rows.permute(0, 1, 4, 2, 3)

    def _windows(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Return what windows see as a view, (M, N, G, C / G, *kernel, *places)."""
        padded = [both for pair in reversed(self.padding) for both in pair]
        seen = F.pad(inputs, padded) if any(padded) else inputs
        for side, kernel in enumerate(shape[2:]):
            reach = (kernel - 1) * self.dilation[side] + 1
            seen = seen.unfold(3 + side, reach, self.stride[side])
            seen = seen[..., :: self.dilation[side]]
        seen = torch.unflatten(seen, 2, (self.groups, -1))
        places = range(4, 4 + len(self.stride))
        return seen.permute(0, 1, 2, 3, *range(places.stop, seen.ndim), *places)

    def returned(self, deltas: Tensor, shape: Sequence[int], samples: int) -> Tensor:
        """Return the deltas of each place, (M, N, T, G, O)."""
        rows = deltas.flatten(3).movedim(3, 2)
        return torch.unflatten(rows, 3, (self.groups, -1))

    def divides(self, inputs: Tensor, shape: Sequence[int], samples: int) -> bool:
        """Return whether each sample has an image."""
        return inputs.shape[1] == samples


@dataclass(frozen=True)
class Lookup:
    """A table (O, I) of a row for each token, of tokens (M, N, ...).

    Attributes:
        padding: token whose row is never moved; None if there is none.
    """

    padding: int | None = None
    is_left: bool = False

    def given(
        self,
        inputs: Tensor,
        shape: Sequence[int],
        samples: int,
        *,
        has_ones: bool = False,
    ) -> Tensor:
        """Return which row each token takes, (M, N, T, 1, O)."""
        tokens = inputs.reshape(len(inputs), samples, -1).long()
        rows = F.one_hot(tokens, shape[0]).unsqueeze(3)
        if self.padding is not None:
            rows[..., self.padding] = 0
        return _with_ones(rows) if has_ones else rows

    def returned(self, deltas: Tensor, shape: Sequence[int], samples: int) -> Tensor:
        """Return the deltas, (M, N, T, 1, I)."""
        return deltas.reshape(len(deltas), samples, -1, 1, shape[1])

    def divides(self, inputs: Tensor, shape: Sequence[int], samples: int) -> bool:
        """Return whether there are as many tokens for each sample."""
        return inputs[0].numel() % samples == 0


@dataclass(frozen=True)
class Use:
    """One use of a weight, and of a bias that is added behind it.

    Attributes:
        weight: name of the tensor.
        bias: name of the tensor; None without.
        inputs: what the layer was called with, (M or 1, N, ...).
        outputs: what it returned, within the graph: one tensor (M, N, ...), or one of
            each model, (N, ...).
        form: how they meet.
        apart: whether there is one tensor of each model.
        is_doubtful: something else was computed of the weight or the bias, by what may
            be no layer, or rows were picked, which may not be of each sample as many.
        is_unlike: models do not use the tensor alike, and nothing else is known.
    """

    weight: str
    bias: str | None
    inputs: Tensor
    outputs: tuple[Tensor, ...]
    form: Form
    apart: bool = False
    is_doubtful: bool = False
    is_unlike: bool = False


def unlike_use(name: str) -> Use:
    """Return a use that says that models do not use a tensor alike.

    Args:
        name: of the tensor.
    """
    return Use(name, None, torch.empty(0), (), Rows(), is_unlike=True)


@dataclass(frozen=True)
class Scaling:
    """One use of factors entry by entry, and of a shift, as behind a norm.

    Attributes:
        weight: name of the factors, (C,).
        bias: name of the shift; None without.
        inputs: what was multiplied, (M, N, ...).
        outputs: what came out, within the graph: one tensor of the same shape, or one
            of each model.
        channel: dimension of the C entries.
        apart: whether there is one tensor of each model.
        deviation: what inputs are to be multiplied by before; None for nothing.
        is_doubtful: as of a `Use`.
    """

    weight: str
    bias: str | None
    inputs: Tensor
    outputs: tuple[Tensor, ...]
    channel: int
    apart: bool = False
    deviation: Tensor | None = None
    is_doubtful: bool = False

    @cached_property
    def multiplied(self) -> Tensor:
        """Multiplied tensor, (M, N, ...), without its graph."""
        inputs = self.inputs.detach()
        return inputs if self.deviation is None else inputs * self.deviation.detach()

    def rows(self, deltas: Tensor) -> Tensor:
        """Return the gradient of each sample, (M, N, C or 2 C).

        Args:
            deltas: what comes back through the outputs.
        """
        others = [d for d in range(2, deltas.ndim) if d != self.channel]
        parts = [deltas * self.multiplied, deltas][: 1 if self.bias is None else 2]
        summed = [part.sum(others) if others else part for part in parts]
        return torch.cat(summed, dim=2)


AnyUse = Use | Scaling


class Manner(NamedTuple):
    """One use, as it is compared with those of other passes or models.

    Attributes:
        weight: name of the tensor.
        bias: name of the tensor; None without.
        how: what has to be the same.
    """

    weight: str
    bias: str | None
    how: Hashable


class UnlikeModelsError(InputError):
    """Models of one pass do not use some tensors alike; each by itself may be taken."""

    def __init__(self, names: Set[str]) -> None:
        """Take the names of the tensors."""
        named = ", ".join(sorted(names))
        super().__init__(
            "model: expected tensors that all models of a tile use alike, got numbers "
            f"that decide on the uses of {named}. Compute models one by one."
        )


def unlike_names(first: Sequence[Manner], second: Sequence[Manner]) -> set[str]:
    """Return the names of tensors that two records do not use alike.

    Args:
        first: uses of one record.
        second: uses of another one.

    Returns:
        Names of weights that are used in another manner or order, and of all that is
        added behind them.
    """
    several: list[dict[str, list[Manner]]] = [{}, {}]
    for manners, by_name in zip((first, second), several, strict=True):
        for manner in manners:
            by_name.setdefault(manner.weight, []).append(manner)
    one, other = several
    unlike = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    orders = [
        [manner.weight for manner in manners if manner.weight not in unlike]
        for manners in (first, second)
    ]
    for names in zip(*orders, strict=True):
        unlike |= set(names) if len(set(names)) > 1 else set()
    added = {manner.bias for manner in (*first, *second) if manner.weight in unlike}
    return unlike | {name for name in added if name is not None}


def without_names(record: Sequence[AnyUse], names: Set[str]) -> list[AnyUse]:
    """Return a record without the uses of some tensors."""
    return [use for use in record if not {use.weight, use.bias} & names]
