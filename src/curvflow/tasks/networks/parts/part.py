"""Parts of a network: dense, activation, dropout, flatten; chains and residuals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.layers import Activation, activate, dense, dropout
from curvflow.tasks.networks.network import Forward, ForwardPass, Layout, Network

Shape = tuple[int, ...]

# Start values of tensors that no initial law draws, by the last part of their names.
START = {"scale": 1.0, "shift": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(frozen=True)
class BuiltPart:
    """A part built for a known input shape.

    Attributes:
        apply: from a forward pass and inputs (M or 1, N, *in) to outputs (M, N, *out).
        out: shape of one sample's outputs.
        tensors: shapes of the parameters by name.
        statistics: shapes of the statistics by name.
        kept: numbers per sample that backpropagation keeps.
        has_paths: outputs are sums over paths.
    """

    apply: Forward
    out: Shape
    tensors: Mapping[str, Shape] = field(default_factory=dict)
    statistics: Mapping[str, Shape] = field(default_factory=dict)
    kept: int = 0
    has_paths: bool = True


# From the shape of one input sample to the built part.
Part = Callable[[Shape], BuiltPart]


def chain(*parts: Part) -> Part:
    """Join parts one after another."""

    def build(shape: Shape) -> BuiltPart:
        placed = []
        for part in parts:
            placed.append(part(shape))
            shape = placed[-1].out

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            for layer in placed:
                x = layer.apply(forward_pass, x)
            return x

        return _joined(placed, apply, shape)

    return build


def residual(body: Part, shortcut: Part) -> Part:
    """Make a residual part: the sum of two parts applied to the same inputs.

    Args:
        body: the long branch.
        shortcut: the short branch, of equal output shape; an empty chain is the
            identity.

    Returns:
        The sum of both branches.
    """

    def build(shape: Shape) -> BuiltPart:
        long, short = body(shape), shortcut(shape)

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            return long.apply(forward_pass, x) + short.apply(forward_pass, x)

        return _joined([long, short], apply, long.out)

    return build


def _joined(placed: Sequence[BuiltPart], apply: Forward, out: Shape) -> BuiltPart:
    return BuiltPart(
        apply,
        out,
        {name: shape for part in placed for name, shape in part.tensors.items()},
        {name: shape for part in placed for name, shape in part.statistics.items()},
        sum(part.kept for part in placed),
        all(part.has_paths for part in placed),
    )


def network_of(part: Part, input_shape: Sequence[int]) -> Network:
    """Make a network of a part.

    Args:
        part: from one sample's inputs to its outputs (C,).
        input_shape: shape of one sample.

    Returns:
        The network. Scales of a normalisation start at 1, other parameters at 0 unless
        an initial law draws them.
    """
    placed = part(tuple(input_shape))
    layout = _layout(placed.tensors)

    def draw_initial(generator: torch.Generator) -> Tensor:
        values = [START.get(name.rpartition(".")[2], 0.0) for name in layout.names]
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
        draw_initial=draw_initial,
        statistics=_layout(placed.statistics),
        start=START,
        has_paths=placed.has_paths,
        notes_all=True,
    )


def _layout(tensors: Mapping[str, Shape]) -> Layout:
    return Layout(tuple(tensors), tuple(tensors.values()))


def dense_part(name: str, out: int, *, bias: bool = True) -> Part:
    """Make a dense layer.

    Args:
        name: name of the layer.
        out: number of units.
        bias: add a bias to each unit.

    Returns:
        The part, from samples (in,) to (out,); the weight has shape (out, in).
    """

    def build(shape: Shape) -> BuiltPart:
        (width,) = shape
        tensors: dict[str, Shape] = {f"{name}.weight": (out, width)}
        if bias:
            tensors[f"{name}.bias"] = (out,)
        return BuiltPart(lambda p, x: dense(p, name, x), (out,), tensors, kept=out)

    return build


def activation(function: Activation) -> Part:
    """Apply a function entry by entry, unless paths are counted."""
    return lambda shape: BuiltPart(lambda p, x: activate(p, function, x), shape)


def dropout_part(rate: float) -> Part:
    """Make a dropout of this rate."""
    return lambda shape: BuiltPart(lambda p, x: dropout(p, rate, x), shape)


def flatten() -> Part:
    """Flatten each sample to one row."""

    def build(shape: Shape) -> BuiltPart:
        return BuiltPart(lambda _, x: x.flatten(2), (math.prod(shape),))

    return build


def check_images(model: str, input_shape: Sequence[int]) -> None:
    """Refuse samples that are not images.

    Args:
        model: name of the model, for the message.
        input_shape: shape of one sample.

    Raises:
        InputError: the shape is not (channels, height, width).
    """
    if len(input_shape) != 3:
        raise InputError(
            f"model: expected images of shape (channels, height, width) for {model}, "
            f"got inputs of shape {tuple(input_shape)}. Take images that are not "
            "flattened, or a dense model."
        )
