"""A part of a network, how parts are joined, and parts without convolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.layers import Activation, activate, dense, dropout
from curvflow.tasks.networks.network import Forward, Layout, Network, Passage

Shape = tuple[int, ...]

# What tensors begin with whose values no initial law draws, by their last names.
BEGIN = {"scale": 1.0, "shift": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(frozen=True)
class Placed:
    """A part at its place, where the shape that comes in is known.

    Attributes:
        apply: from a passage and inputs (M or 1, N, *in) to outputs (M, N, *out).
        out: shape of one sample's outputs.
        tensors: shapes of its parameters by name.
        statistics: shapes of the statistics it keeps, by name.
        kept: numbers per sample that a gradient needs of it.
        has_paths: whether its outputs are sums over paths.
    """

    apply: Forward
    out: Shape
    tensors: Mapping[str, Shape] = field(default_factory=dict)
    statistics: Mapping[str, Shape] = field(default_factory=dict)
    kept: int = 0
    has_paths: bool = True


# From the shape that comes in to the part at its place.
Part = Callable[[Shape], Placed]


def chain(*parts: Part) -> Part:
    """Join parts one after another."""

    def place(shape: Shape) -> Placed:
        placed = []
        for part in parts:
            placed.append(part(shape))
            shape = placed[-1].out

        def apply(passage: Passage, x: Tensor) -> Tensor:
            for one in placed:
                x = one.apply(passage, x)
            return x

        return _joined(placed, apply, shape)

    return place


def residual(body: Part, shortcut: Part) -> Part:
    """Add what two parts make of the same inputs.

    Args:
        body: one of them.
        shortcut: the other, of equal outputs; an empty chain passes the inputs on.

    Returns:
        Their sum.
    """

    def place(shape: Shape) -> Placed:
        long, short = body(shape), shortcut(shape)

        def apply(passage: Passage, x: Tensor) -> Tensor:
            return long.apply(passage, x) + short.apply(passage, x)

        return _joined([long, short], apply, long.out)

    return place


def _joined(placed: Sequence[Placed], apply: Forward, out: Shape) -> Placed:
    return Placed(
        apply,
        out,
        {name: shape for one in placed for name, shape in one.tensors.items()},
        {name: shape for one in placed for name, shape in one.statistics.items()},
        sum(one.kept for one in placed),
        all(one.has_paths for one in placed),
    )


def network_of(part: Part, input_shape: Sequence[int]) -> Network:
    """Make a network of a part.

    Args:
        part: from one sample's inputs to its outputs (C,).
        input_shape: of one sample.

    Returns:
        The network. Scales of a normalisation begin at 1, other parameters at 0 unless
        an initial law draws them.
    """
    placed = part(tuple(input_shape))
    layout = _layout(placed.tensors)

    def own(generator: torch.Generator) -> Tensor:
        values = [BEGIN.get(name.rpartition(".")[2], 0.0) for name in layout.names]
        return torch.cat(
            [
                torch.full((size,), value, dtype=torch.float64)
                for size, value in zip(layout.sizes, values, strict=True)
            ]
        )

    return Network(
        layout,
        placed.apply,
        # Twice, as for dense layers: before and after an activation.
        width=2 * (math.prod(input_shape) + placed.kept),
        own=own,
        statistics=_layout(placed.statistics),
        begin=BEGIN,
        has_paths=placed.has_paths,
    )


def _layout(tensors: Mapping[str, Shape]) -> Layout:
    return Layout(tuple(tensors), tuple(tensors.values()))


def dense_part(name: str, out: int, *, bias: bool = True) -> Part:
    """Make a dense layer.

    Args:
        name: of the layer.
        out: number of its units.
        bias: whether it has one.

    Returns:
        The part, from samples (in,) to (out,); the weight has shape (out, in).
    """

    def place(shape: Shape) -> Placed:
        (width,) = shape
        tensors: dict[str, Shape] = {f"{name}.weight": (out, width)}
        if bias:
            tensors[f"{name}.bias"] = (out,)
        return Placed(lambda p, x: dense(p, name, x), (out,), tensors, kept=out)

    return place


def activation(function: Activation) -> Part:
    """Apply a function entry by entry, unless paths are counted."""
    return lambda shape: Placed(lambda p, x: activate(p, function, x), shape)


def dropout_part(rate: float) -> Part:
    """Put entries to zero at this rate in training."""
    return lambda shape: Placed(lambda p, x: dropout(p, rate, x), shape)


def flatten() -> Part:
    """Make one row of each sample."""

    def place(shape: Shape) -> Placed:
        return Placed(lambda _, x: x.flatten(2), (math.prod(shape),))

    return place


def check_images(model: str, input_shape: Sequence[int]) -> None:
    """Refuse what is no image.

    Args:
        model: its name, for the message.
        input_shape: of one sample.

    Raises:
        InputError: it is not (channels, height, width).
    """
    if len(input_shape) != 3:
        raise InputError(
            f"model: expected images of shape (channels, height, width) for {model}, "
            f"got inputs of shape {tuple(input_shape)}. Take images that are not "
            "flattened, or a dense model."
        )
