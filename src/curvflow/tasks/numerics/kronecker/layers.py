"""Layers as read from a record of uses: which tensors make a block, and by what rows.

Letters of shapes, besides those of `uses`: R draws or roots of a sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Rows, Scaling, Use, Windows

Approximation = Literal["expand", "reduce"]

# Positions of a sample from which draws are not laid side by side.
MANY_POSITIONS = 16


class SharedRows:
    """Rows of inputs that several uses of a pass have, such as the three of attention.

    They are made once, and live as long as this.
    """

    def __init__(self, record: Sequence[AnyUse]) -> None:
        """Take the uses of the pass."""
        places = Counter(_place(use) for use in record if isinstance(use, Use))
        self._several = {place for place, count in places.items() if count > 1}
        self._rows: dict[Hashable, Tensor] = {}
        self._known: set[int] = set()

    def rows(
        self,
        use: Use,
        shape: tuple[int, ...],
        make: Callable[[], Tensor],
        *,
        has_ones: bool,
    ) -> Tensor:
        """Return the rows of a use.

        Args:
            use: one of the pass.
            shape: of its weight.
            make: makes the rows.
            has_ones: whether ones follow what went in.
        """
        place = _place(use)
        if place not in self._several:
            return make()
        key = place, use.form, shape, has_ones
        if key not in self._rows:
            self._rows[key] = make()
            self._known.add(id(self._rows[key]))
        return self._rows[key]

    def __contains__(self, rows: Tensor) -> bool:
        """Return whether rows are of inputs that several uses have."""
        return id(rows) in self._known


def _place(use: Use) -> Hashable:
    """Return where in memory the inputs of a use lie, and how."""
    given = use.inputs
    storage = given.untyped_storage()._cdata
    return storage, given.storage_offset(), given.shape, given.stride(), given.dtype


@dataclass(frozen=True)
class Pass:
    """A pass over some samples, with what comes back through the networks.

    Attributes:
        part: models and samples.
        record: uses of parameters.
        deltas: of each use what comes back through its outputs, (M, N, ...), of each
            draw or root; nothing of uses that are not looked at.
        shared: rows of inputs that several uses have; None to make them for each.
    """

    part: Part
    record: Sequence[AnyUse]
    deltas: Sequence[Sequence[Tensor]]
    shared: SharedRows | None = None

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self.part.inputs.shape[1]

    @property
    def num_draws(self) -> int:
        """Number of draws or roots, R."""
        return max(map(len, self.deltas), default=0)


@dataclass(frozen=True)
class Sides:
    """Rows whose outer products, summed over positions, are gradients of a weight.

    Attributes:
        left: (M, N, R or 1, G, T, O).
        right: (M, N, R or 1, G, T, I).
    """

    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Layer:
    """A weight with all its uses, and perhaps a bias.

    Attributes:
        weight: name of the tensor.
        bias: name of the bias that all its uses add; None without.
        shape: of the weight.
        groups: that the weight is cut into, G.
        uses: numbers of its uses in a record.
        tokens_first: its rows are (M, T, N, I), whatever was noted.
    """

    weight: str
    bias: str | None
    shape: tuple[int, ...]
    groups: int
    uses: tuple[int, ...]
    tokens_first: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """G, O and I."""
        columns = math.prod(self.shape[1:])
        return self.groups, self.shape[0] // self.groups, columns

    def ordered(self, use: AnyUse) -> Use:
        """Return one of its uses, with the order that its rows have."""
        assert isinstance(use, Use)
        if not self.tokens_first or not isinstance(use.form, Rows):
            return use
        return replace(use, form=replace(use.form, tokens_first=True))

    def sides(
        self,
        record: Sequence[AnyUse],
        deltas: Sequence[Sequence[Tensor]],
        samples: int,
        *,
        has_ones: bool = False,
        shared: SharedRows | None = None,
    ) -> Iterator[tuple[Use, Sides]]:
        """Yield the rows of each use.

        Args:
            record: of the pass.
            deltas: of each use what comes back through its outputs, (M, N, ...), of
                each draw or root.
            samples: N.
            has_ones: whether ones follow what went in.
            shared: rows of inputs that several uses of the pass have.
        """
        how: dict[str, Any] = {"has_ones": has_ones, "shared": shared}
        for number in self.uses:
            use = self.ordered(record[number])
            back = _stacked(self.returned(use, deltas[number], samples))
            given = self.given(use, back, samples, **how)
            yield use, Sides(back, given) if use.form.is_left else Sides(given, back)

    def returned(
        self, use: Use, deltas: Sequence[Tensor], samples: int
    ) -> list[Tensor]:
        """Return what comes back through a use of each root, (M, N, T, G, K)."""
        return [use.form.returned(delta, self.shape, samples) for delta in deltas]

    def given(
        self,
        use: Use,
        back: Tensor,
        samples: int,
        *,
        has_ones: bool = False,
        shared: SharedRows | None = None,
    ) -> Tensor:
        """Return what went into a use, (M, N, 1, G, T, K), beside what comes back."""

        def make() -> Tensor:
            rows = use.form.given(
                use.inputs.detach(), self.shape, samples, has_ones=has_ones
            ).to(back)
            given = rows.unsqueeze(2).transpose(3, 4)
            is_whole = len(given) == len(back)
            return given if is_whole else given.expand(len(back), *[-1] * 5)

        if shared is None:
            return make()
        return shared.rows(use, self.shape, make, has_ones=has_ones)


def _stacked(several: list[Tensor]) -> Tensor:
    """Return what comes back of each root (M, N, T, G, K) as (M, N, R, G, T, K).

    One is not copied, and several as they stand in memory, rows or places together.
    """
    first = several[0]
    if len(several) == 1:
        return first.unsqueeze(2).transpose(3, 4)
    if first.stride(2) == 1 < first.shape[2]:
        return torch.stack(
            [delta.permute(0, 1, 3, 4, 2) for delta in several], 4
        ).permute(0, 1, 4, 2, 5, 3)
    return torch.stack(several, dim=2).transpose(3, 4)


def joined_draws(several: Sequence[Tensor]) -> Tensor:
    """Lay rows (M, N, 1, G, T, K) of one draw each side by side, (M, N, R, G, T, K)."""
    if len(several) == 1:
        return several[0]
    return _stacked([rows.squeeze(2).transpose(2, 3) for rows in several])


@dataclass(frozen=True)
class Piece:
    """A layer's block, or one of its two blocks where the bias has its own.

    Attributes:
        layer: whose block it is.
        names: of its tensors.
        places: of all tensors looked at.
        has_weight: the weight is in it.
        has_bias: the bias is in it, as a last column of the weight.
    """

    layer: Layer
    names: tuple[str, ...]
    places: Places
    has_weight: bool
    has_bias: bool

    @property
    def name(self) -> str:
        """Name of its tensors, joined."""
        return " and ".join(self.names)

    @cached_property
    def columns(self) -> Tensor:
        """Places of its parameters, in the order G, O, I."""
        return _columns(self.layer, self.places, self.names)

    def find_columns(self) -> Tensor:
        """Return `columns`, for those who may not need them."""
        return self.columns

    @property
    def sizes(self) -> tuple[int, int, int]:
        """G, O and the columns of the block."""
        groups, rows, columns = self.layer.sizes
        return groups, rows, columns * self.has_weight + self.has_bias

    def sides(self, pass_: Pass) -> Iterator[tuple[Use, Sides]]:
        """Yield the rows of the block of each use in a pass."""
        has_both = self.has_weight and self.has_bias
        for use, sides in self.layer.sides(
            pass_.record,
            pass_.deltas,
            pass_.samples,
            has_ones=has_both,
            shared=pass_.shared,
        ):
            if self.has_weight:
                yield use, sides
            else:
                yield use, Sides(sides.left, torch.ones_like(sides.right[..., :1]))

    def draws_apart(
        self, pass_: Pass
    ) -> tuple[bool, list[Tensor], list[Tensor]] | None:
        """Return rows of a single use whose draws lie apart, as they came back.

        To lay those of many positions side by side takes as long as to multiply them.

        Returns:
            Whether what comes back is the left side, and rows of both, (M, N, 1, G, T,
            K) each; None where there are one draw, several uses, or few positions.
        """
        layer = self.layer
        if len(layer.uses) > 1 or not self.has_weight or pass_.num_draws == 1:
            return None
        (number,) = layer.uses
        use = layer.ordered(pass_.record[number])
        several = layer.returned(use, pass_.deltas[number], pass_.samples)
        if several[0].shape[2] < MANY_POSITIONS:
            return None
        back = [each.unsqueeze(2).transpose(3, 4) for each in several]
        how: dict[str, Any] = {"has_ones": self.has_bias, "shared": pass_.shared}
        given = [layer.given(use, back[0], pass_.samples, **how)]
        is_left = use.form.is_left
        return (True, back, given) if is_left else (False, given, back)


@dataclass(frozen=True)
class Places:
    """Positions of parameters in a vector of those looked at.

    Attributes:
        start: of each tensor looked at, by name.
        shapes: of all tensors, by name.
        size: number of all entries looked at.
    """

    start: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    size: int

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        chosen: set[str],
        unselected: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> Places:
        """Take the tensors of a network, of which some are looked at.

        Args:
            names: of the tensors.
            shapes: of these.
            chosen: names of those looked at.
            unselected: shapes of others, by name, which are none of the parameters.

        Returns:
            The positions.
        """
        by_name = dict(zip(names, shapes, strict=True))
        start, size = {}, 0
        for name in names:
            if name in chosen:
                start[name] = size
                size += math.prod(by_name[name])
        return cls(start, {**unselected, **by_name}, size)

    def columns(self, name: str) -> Tensor:
        """Return the places of a tensor's entries, in their order."""
        start = self.start[name]
        return torch.arange(start, start + math.prod(self.shapes[name]))


@dataclass(frozen=True)
class Read:
    """A record of uses, sorted.

    Attributes:
        layers: with weights of outer products.
        scalings: numbers of uses that are scales and shifts.
        rest: names of tensors looked at that neither accounts for.
    """

    layers: tuple[Layer, ...]
    scalings: tuple[int, ...]
    rest: tuple[str, ...]


def read(record: Sequence[AnyUse], places: Places) -> Read:
    """Sort a record of uses.

    Args:
        record: of a pass.
        places: of the tensors looked at.

    Returns:
        Layers and scales, each tensor in one of them, and what is left: parameters
        that no layer is known of, a bias of several weights, a scale used twice, a
        weight that is cut into groups in two ways.
    """
    numbers, biases = _numbered(record)
    layers, scalings, taken = [], [], set[str]()
    for weight, of_weight in numbers.items():
        uses = [record[number] for number in of_weight]
        added = {use.bias for use in uses}
        bias = added.pop() if len(added) == 1 else None
        if bias is not None and biases[bias] != {weight}:
            bias = None
        if not {weight, bias} & set(places.start):
            continue
        if any(isinstance(use, Scaling) for use in uses):
            if len(uses) == 1 and bias == uses[0].bias:
                scalings.append(of_weight[0])
                taken |= {weight, bias or weight}
            continue
        groups = {_groups(use) for use in uses}
        if len(groups) > 1:
            continue
        shape = places.shapes[weight]
        layers.append(Layer(weight, bias, shape, groups.pop(), tuple(of_weight)))
        taken |= {weight, bias or weight}
    rest = tuple(name for name in places.start if name not in taken)
    return Read(tuple(layers), tuple(scalings), rest)


def _numbered(
    record: Sequence[AnyUse],
) -> tuple[dict[str, list[int]], dict[str, set[str]]]:
    """Return the numbers of uses by their weights, and the weights of each bias."""
    numbers: dict[str, list[int]] = {}
    biases: dict[str, set[str]] = {}
    for number, use in enumerate(record):
        numbers.setdefault(use.weight, []).append(number)
        if use.bias is not None:
            biases.setdefault(use.bias, set()).add(use.weight)
    return numbers, biases


def _groups(use: AnyUse) -> int:
    if isinstance(use, Use) and isinstance(use.form, Windows):
        return use.form.groups
    return 1


def pieces(layer: Layer, places: Places, *, separate: bool) -> list[Piece]:
    """Return the blocks of a layer.

    Args:
        layer: with tensors looked at.
        places: of these.
        separate: whether the bias has a separate block.

    Returns:
        One block, or two.
    """
    both = layer.weight, layer.bias
    tensors = [name for name in both if name is not None and name in places.start]
    joined = [[name] for name in tensors] if separate else [tensors]
    return [
        Piece(
            layer,
            tuple(names),
            places,
            has_weight=layer.weight in names,
            has_bias=layer.bias in names,
        )
        for names in joined
    ]


def _columns(layer: Layer, places: Places, names: Sequence[str]) -> Tensor:
    """Return the places of a block's parameters, row by row."""
    if len(names) == 1:
        return places.columns(names[0])
    groups, rows, columns = layer.sizes
    # Consecutive numbers, in which each bias before a row is left out again.
    numbers = torch.arange(groups * rows * (columns + 1)).view(groups * rows, -1)
    before = torch.arange(groups * rows)
    weight, bias = names
    numbers += (places.start[weight] - before).unsqueeze(1)
    numbers[:, -1] = places.start[bias] + before
    return numbers.flatten()


def check_positions(layer: Layer, record: Sequence[AnyUse], how: str) -> None:
    """Refuse to reduce the positions of a weight that is a table and a layer in one.

    Raises:
        InputError: its uses have different sides.
    """
    sides = set()
    for number in layer.uses:
        use = record[number]
        assert isinstance(use, Use)
        sides.add(use.form.is_left)
    if how == "reduce" and len(sides) > 1:
        raise InputError(
            f"kfac_approx: reduce cannot be combined with '{layer.weight}', which is a "
            "table of tokens and a layer at once. Take expand."
        )
