"""Losses of dense networks and their gradients, written out in batched products.

For networks of a few layers most of a step of autograd is overhead, and for large ones
its memory, which is new at every step, costs page faults. Here both passes write into
memory that stays, and gradients straight into stacked vectors.

Further letters: C chains, I inputs and O outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_aten = torch.ops.aten

# A product of so many columns fills a processor's vectors. One of fewer is up to
# six times as fast transposed, which pays for a copy from MANY numbers of a factor on.
FILLED = 16
MANY = 1 << 11


@dataclass(frozen=True)
class DenseForm:
    """Dense layers one after another, as they lie in a vector of parameters.

    Attributes:
        widths: from the inputs, flattened, to the outputs of the last layer.
        activations: names of those after each layer but the last.
        bias: whether each layer's weight (out, in) is followed by a bias (out,).
        has_reference: whether an output of 0 follows those of the last layer.
    """

    widths: tuple[int, ...]
    activations: tuple[str, ...]
    bias: bool
    has_reference: bool = False


class Layer(NamedTuple):
    """One layer's part of stacked vectors, as views.

    Attributes:
        weight: (C, O, I).
        turned: its transpose, (C, I, O).
        bias: (C, 1, O), or None.
    """

    weight: Tensor
    turned: Tensor
    bias: Tensor | None


def cut(form: DenseForm, weights_CD: Tensor) -> list[Layer]:
    """Return stacked vectors as layers that share their memory."""
    layers, at = [], 0
    for before, after in pairwise(form.widths):
        size = before * after
        weight_COI = weights_CD[:, at : at + size].view(-1, after, before)
        at += size
        bias_C1O = weights_CD[:, None, at : at + after] if form.bias else None
        at += after if form.bias else 0
        layers.append(Layer(weight_COI, weight_COI.mT, bias_C1O))
    return layers


class Room:
    """Memory for one passage of some chains and samples, used again by the next.

    Attributes:
        inputs: (C, B, I).
        flat: the same as rows, (C B, I).
        kept: of each layer, what its activation's slope is computed from.
        other: of each layer, its outputs if they are not kept, then the gradient.
        turned: the transposes of `other`.
        rows: of layers of few outputs these as (C, O, B), None of others; where it is
            one output they are `kept` itself.
        columns: of layers of few inputs and more outputs, (C, I, O), None of others.
        products: of each layer, (C, O, I), or None for a chain alone: products of
            several are slow into memory that does not lie in one piece, so that they
            are copied there.
    """

    def __init__(self, form: DenseForm, chains: int, samples: int, like: Tensor):
        """Take the memory."""

        def buffer(width: int) -> Tensor:
            return like.new_empty(chains, samples, width)

        self.inputs = buffer(form.widths[0])
        self.flat = self.inputs.flatten(0, 1)
        self.kept = [buffer(width) for width in form.widths[1:]]
        self.other = [buffer(width) for width in form.widths[1:]]
        self.turned = [other.mT for other in self.other]
        self.rows = [
            _rows(kept, before)
            for kept, before in zip(self.kept, form.widths[:-1], strict=True)
        ]
        self.columns = [
            like.new_empty(chains, before, after) if before < FILLED <= after else None
            for before, after in pairwise(form.widths)
        ]
        self.products = [
            like.new_empty(chains, after, before) if chains > 1 else None
            for before, after in pairwise(form.widths)
        ]


def _rows(kept_CBO: Tensor, num_inputs: int) -> Tensor | None:
    chains, samples, width = kept_CBO.shape
    if width == 1:
        return kept_CBO.view(chains, 1, samples)
    if width < FILLED and samples * num_inputs >= MANY:
        return kept_CBO.new_empty(chains, width, samples)
    return None


def _gelu(kept: Tensor, spare: Tensor) -> Tensor:
    _aten.gelu.out(kept, out=spare)
    return spare


def _gelu_back(back: Tensor, kept: Tensor) -> None:
    _aten.gelu_backward.grad_input(back, kept, grad_input=back)


def _relu_back(back: Tensor, kept: Tensor) -> None:
    _aten.threshold_backward.grad_input(back, kept, 0, grad_input=back)


def _sigmoid_back(back: Tensor, kept: Tensor) -> None:
    _aten.sigmoid_backward.grad_input(back, kept, grad_input=back)


def _tanh_back(back: Tensor, kept: Tensor) -> None:
    _aten.tanh_backward.grad_input(back, kept, grad_input=back)


# From what a layer gave, which is kept, and other memory to outputs, and from the
# gradient by outputs, in place, and what was kept to that by what the layer gave. The
# slope is of the outputs where they tell it, which are then written over its inputs.
_ACTIVATIONS: dict[
    str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], None]]
] = {
    "gelu": (_gelu, _gelu_back),
    "identity": (lambda kept, spare: kept, lambda back, kept: None),
    "relu": (lambda kept, spare: torch.relu_(kept), _relu_back),
    "sigmoid": (lambda kept, spare: torch.sigmoid_(kept), _sigmoid_back),
    "tanh": (lambda kept, spare: torch.tanh_(kept), _tanh_back),
}


def forward(
    form: DenseForm, layers: Sequence[Layer], room: Room, inputs_CBI: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Compute outputs.

    Args:
        form: of the networks.
        layers: of the chains that the room is for.
        room: is written into.
        inputs_CBI: may be that of the room.

    Returns:
        Outputs (C, B, O), and what each layer saw.
    """
    seen, last = [inputs_CBI], len(layers) - 1
    for number, (layer, kept) in enumerate(zip(layers, room.kept, strict=True)):
        _through(layer, seen[-1], kept, room.rows[number])
        if number < last:
            activation, _ = _ACTIVATIONS[form.activations[number]]
            seen.append(activation(kept, room.other[number]))
    outputs_CBO = room.kept[-1]
    return (pad(outputs_CBO, (0, 1)) if form.has_reference else outputs_CBO), seen


def _through(
    layer: Layer, x_CBI: Tensor, into_CBO: Tensor, rows_COB: Tensor | None
) -> None:
    """Write a layer's outputs, those of few by way of rows."""
    if rows_COB is None:
        if layer.bias is None:
            torch.bmm(x_CBI, layer.turned, out=into_CBO)
        else:
            torch.baddbmm(layer.bias, x_CBI, layer.turned, out=into_CBO)
        return
    if layer.bias is None:
        torch.bmm(layer.weight, x_CBI.mT, out=rows_COB)
    else:
        torch.baddbmm(layer.bias.mT, layer.weight, x_CBI.mT, out=rows_COB)
    if into_CBO.shape[2] > 1:
        into_CBO.copy_(rows_COB.mT)


def backward(
    form: DenseForm,
    layers: Sequence[Layer],
    room: Room,
    seen: Sequence[Tensor],
    into: Sequence[Layer],
    *,
    adds: bool,
) -> None:
    """Compute the gradient, after `forward`, from that by outputs, last of `other`.

    Args:
        form: of the networks.
        layers: of the chains that the room is for.
        room: is written into.
        seen: what each layer saw.
        into: where the gradient goes.
        adds: whether it is added to the numbers there.
    """
    for number in range(len(layers) - 1, -1, -1):
        back, target = room.other[number], into[number]
        if adds:
            target.weight.baddbmm_(room.turned[number], seen[number])
        elif (columns_CIO := room.columns[number]) is not None:
            torch.bmm(seen[number].mT, back, out=columns_CIO)
            target.weight.copy_(columns_CIO.mT)
        elif (product_COI := room.products[number]) is None:
            torch.bmm(room.turned[number], seen[number], out=target.weight)
        else:
            torch.bmm(room.turned[number], seen[number], out=product_COI)
            target.weight.copy_(product_COI)
        if target.bias is not None:
            if adds:
                target.bias.add_(back.sum(1, keepdim=True))
            else:
                torch.sum(back, 1, keepdim=True, out=target.bias)
        if number:
            before = number - 1
            # Of one output the product is an outer one, which needs no sums.
            multiply = torch.mul if back.shape[2] == 1 else torch.bmm
            multiply(back, layers[number].weight, out=room.other[before])
            _, slope = _ACTIVATIONS[form.activations[before]]
            slope(room.other[before], room.kept[before])


def squared_loss(
    outputs_CBO: Tensor, targets: Tensor, into_CBO: Tensor | None, each: float
) -> Tensor:
    """Return the sum of squared errors times `each`, (C,).

    Args:
        outputs_CBO: of networks.
        targets: values, (C or 1, B, O).
        into_CBO: where the gradient by the outputs goes, if it is wanted.
        each: factor of every square.
    """
    apart_CBO = torch.sub(outputs_CBO, targets, out=into_CBO)
    flat_CR = apart_CBO.flatten(1)
    losses_C: Tensor = torch.linalg.vecdot(flat_CR, flat_CR).mul_(each)
    if into_CBO is not None:
        into_CBO.mul_(2 * each)
    return losses_C


def cross_entropy_loss(
    outputs_CBO: Tensor, targets: Tensor, into_CBO: Tensor | None, each: float
) -> Tensor:
    """Return the sum of the softmax's cross-entropies times `each`, (C,).

    Args:
        outputs_CBO: of networks.
        targets: labels, (C or 1, B).
        into_CBO: where the gradient by the outputs goes, if it is wanted; of a
            reference it is left out.
        each: factor of every sample.
    """
    # log_softmax takes several times as long where there are few outputs.
    is_whole = into_CBO is not None and into_CBO.shape == outputs_CBO.shape
    peaks_CB1 = outputs_CBO.amax(-1, keepdim=True)
    chances_CBO = torch.sub(outputs_CBO, peaks_CB1, out=into_CBO if is_whole else None)
    index_CB1 = targets.expand(outputs_CBO.shape[:-1]).unsqueeze(-1)
    chosen_CB1 = chances_CBO.gather(-1, index_CB1)
    sums_CB1 = chances_CBO.exp_().sum(-1, keepdim=True)
    losses_C = sums_CB1.log().sub_(chosen_CB1).sum((1, 2)).mul_(each)
    if into_CBO is not None:
        shares_CB1 = sums_CB1.reciprocal_().mul_(each)
        away_CB1 = chosen_CB1.exp_().mul_(shares_CB1).sub_(each)
        chances_CBO.mul_(shares_CB1).scatter_(-1, index_CB1, away_CB1)
        if not is_whole:
            into_CBO.copy_(chances_CBO[..., : into_CBO.shape[-1]])
    return losses_C
