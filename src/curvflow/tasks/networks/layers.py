"""Layers and activations for a batch of models, by batched products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import gelu

from curvflow.tasks.networks.network import ForwardPass, Layout, Network
from curvflow.tasks.numerics.kronecker.uses import Rows, Scaling, Use

Activation = Callable[[Tensor], Tensor]


def dense(
    forward_pass: ForwardPass,
    name: str,
    x_MNI: Tensor,
    weight: str = "weight",
    bias: str = "bias",
) -> Tensor:
    """Multiply rows by a weight (out, in), and add a bias (out,) if there is one.

    Args:
        forward_pass: tensors of the network.
        name: name of the layer.
        x_MNI: rows, of which a sample may have several, one after another; M may be 1
            where models share them.
        weight: name of the weight in the layer.
        bias: name of the bias in the layer.

    Returns:
        The rows, (M, N, out).
    """
    names = f"{name}.{weight}", f"{name}.{bias}"
    weight_MIO = forward_pass.tensors[names[0]].mT
    bias_MO = forward_pass.tensors.get(names[1])
    x_MNI = x_MNI.expand(len(weight_MIO), -1, -1)
    bias_M1O = None if bias_MO is None else bias_MO.unsqueeze(1)
    y_MNO = _moving_alone(x_MNI, weight_MIO, bias_M1O)
    if y_MNO is None:
        y_MNO = _affine(x_MNI, weight_MIO, bias_M1O)
    if forward_pass.uses is not None:
        added = None if bias_MO is None else names[1]
        forward_pass.uses.append(Use(names[0], added, x_MNI, (y_MNO,), Rows()))
    return y_MNO


def _affine(x_MNI: Tensor, weight_MIO: Tensor, bias_M1O: Tensor | None) -> Tensor:
    if bias_M1O is None:
        return torch.bmm(x_MNI, weight_MIO)
    return torch.baddbmm(bias_M1O, x_MNI, weight_MIO)


def _moving_alone(
    x_MNI: Tensor, weight_MIO: Tensor, bias_M1O: Tensor | None
) -> Tensor | None:
    """Return the rows with their derivative forward where weights alone have one.

    Torch multiplies the weights by zeros for rows without, which takes as long as the
    derivative itself. None elsewhere.
    """
    # Of which no public name tells: at level -1 nothing is derived forward.
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return None
    weight_MIO, moved_MIO = _dual(weight_MIO)
    if moved_MIO is None or _dual(x_MNI)[1] is not None:
        return None
    tangent_MNO = torch.bmm(x_MNI, moved_MIO)
    if bias_M1O is not None:
        bias_M1O, moved_M1O = _dual(bias_M1O)
        if moved_M1O is not None:
            tangent_MNO = moved_M1O + tangent_MNO
    y_MNO = _affine(x_MNI, weight_MIO, bias_M1O)
    both: Tensor = forward_ad.make_dual(y_MNO, tangent_MNO)  # type: ignore[no-untyped-call] # torch has no types
    return both


def _dual(tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a tensor without its derivative forward, and that, if there is one."""
    primal, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call] # torch has no types
    return primal, tangent


def note_scaling(
    forward_pass: ForwardPass,
    name: str,
    x: Tensor,
    y: Tensor,
    *,
    channel: int,
    deviation: Tensor | None = None,
) -> None:
    """Note the scale and the shift behind a norm, where uses are recorded.

    Args:
        forward_pass: of the network.
        name: of the norm, with a `scale` and perhaps a `shift`.
        x: to be scaled, (M, N, ...).
        y: what comes out.
        channel: dimension of their entries.
        deviation: what x is multiplied by before it is scaled, if anything.
    """
    if forward_pass.uses is not None:
        shift = f"{name}.shift"
        added = shift if shift in forward_pass.tensors else None
        use = Scaling(f"{name}.scale", added, x, (y,), channel, deviation=deviation)
        forward_pass.uses.append(use)


def activate(forward_pass: ForwardPass, activation: Activation, x: Tensor) -> Tensor:
    """Apply an activation, unless paths are counted."""
    return x if forward_pass.counts_paths else activation(x)


def dropout(forward_pass: ForwardPass, rate: float, x: Tensor) -> Tensor:
    """Zero each entry with probability `rate` in training, and rescale the others.

    Args:
        forward_pass: source of random numbers for each model.
        rate: probability, in [0, 1).
        x: shape (M, N, ...).

    Returns:
        The same shape; x itself when not in training or without a rate.
    """
    if forward_pass.draw is None or rate == 0:
        return x
    return x * (forward_pass.draw(tuple(x.shape[1:])) >= rate) / (1 - rate)


def dense_layers(
    widths: Sequence[int],
    activation: Activation,
    *,
    bias: bool,
    drop: float = 0.0,
    linear: Sequence[int] = (),
) -> Network:
    """Build dense layers with an activation between them.

    Args:
        widths: from the inputs, flattened, to the outputs.
        activation: applied after every layer but the last.
        bias: whether layers have one.
        drop: rate of dropout after each activation.
        linear: numbers of layers, from 1, that have no activation either.

    Returns:
        The network; weights have shape (out, in).
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        shapes[f"layer{number}.weight"] = (after, before)
        if bias:
            shapes[f"layer{number}.bias"] = (after,)
    last = len(widths) - 1

    def forward(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        x = inputs.flatten(2)
        for number in range(1, last + 1):
            x = dense(forward_pass, f"layer{number}", x)
            if number < last:
                if number not in linear:
                    x = activate(forward_pass, activation, x)
                x = dropout(forward_pass, drop, x)
        return x

    layout = Layout(tuple(shapes), tuple(shapes.values()))
    return Network(layout, forward, width=2 * sum(widths), notes_all=True)


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": gelu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
