"""Networks whose uses of parameters are recorded, pass by pass over data."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.fishers import connected
from curvflow.tasks.numerics.derivatives.passes import Part, passes
from curvflow.tasks.numerics.derivatives.precision import differentiable, full_precision
from curvflow.tasks.numerics.kronecker.layers import (
    Layer,
    Pass,
    Places,
    Read,
    read,
)
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Scaling

# From full weights (M, D + S) and inputs to outputs and the record of uses.
Call = Callable[[Tensor, Tensor], tuple[Tensor, list[AnyUse]]]

# Of a pass and its outputs (M, N, ...) to roots (M, N, R, ...), each sum over R of
# outer products a sample's matrix by its outputs.
Roots = Callable[[Part, Tensor], Tensor]

# Of a pass and its outputs (M, N, C) to the gradient of each sample's loss, (M, N, C).
Slopes = Callable[[Part, Tensor], Tensor]

# Gradients by uses and by torch agree within this share of what is added up.
AGREES = {torch.float64: 1e-8, torch.float32: 1e-4}


@dataclass(frozen=True)
class Recorded:
    """Networks whose uses of parameters are recorded, and the data to average over.

    Attributes:
        call: the networks.
        names: of all parameter tensors, in their order.
        shapes: of these.
        weights: parameters, (M, D).
        fixed: constants behind them, (M, S).
        inputs: shape (M or 1, N, ...).
        targets: shape (M or 1, N, ...).
        roots: of a pass.
        batch_size: samples per pass.
        models_per_pass: models per pass.
        slopes: gradients of the samples' losses by the outputs, where they are needed.
        notes_all: tensors that are noted at all are noted at each of their uses, and
            samples do not meet, so that it need not be tried; layers are the package's
            own, all of whose derivatives torch has.
    """

    call: Call
    names: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    weights: Tensor
    fixed: Tensor
    inputs: Tensor
    targets: Tensor
    roots: Roots
    batch_size: int
    models_per_pass: int
    slopes: Slopes | None = None
    notes_all: bool = False

    def parts(self) -> Iterator[Part]:
        """Yield the passes."""
        return passes(
            self.weights,
            self.fixed,
            self.inputs,
            self.targets,
            batch_size=self.batch_size,
            models_per_pass=self.models_per_pass,
        )

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        return self.inputs.shape[1]

    def starts(self) -> dict[str, int]:
        """Return where each tensor begins in the weights."""
        sizes = [prod(shape) for shape in self.shapes]
        return dict(zip(self.names, accumulate(sizes, initial=0), strict=False))

    def forward(self, part: Part) -> tuple[Tensor, list[AnyUse], Tensor]:
        """Return outputs, record and the weights that they are derived by."""
        weights = part.weights.detach().requires_grad_()
        # What notes all uses has no fused layers to go around.
        precise = full_precision() if self.notes_all else differentiable()
        with torch.enable_grad(), precise:
            outputs, record = self.call(part.full(weights), part.inputs)
            outputs = connected(outputs, weights)
        # Nothing comes back through what is computed with gradients switched off.
        record = [use for use in record if all(t.requires_grad for t in use.outputs)]
        return outputs, record, weights

    def begun(self) -> Begun:
        """Return the first pass forward, with which a sweep may begin."""
        parts = self.parts()
        part = next(parts)
        outputs, record, _ = self.forward(part)
        return Begun(part, parts, outputs, record)

    def swept(
        self, begun: Begun | None = None, wanted: Collection[int] | None = None
    ) -> Iterator[Pass]:
        """Yield all passes.

        Args:
            begun: the first of them, forward.
            wanted: numbers of the uses through which something comes back; None for
                all.
        """
        parts = self.parts() if begun is None else chain([begun.part], begun.rest)
        for part in parts:
            if begun is None:
                outputs, record, _ = self.forward(part)
            else:
                outputs, record = begun.outputs, begun.record
                begun = None
            roots = self.roots(part, outputs.detach())
            chosen = range(len(record)) if wanted is None else sorted(wanted)
            returned = backward(outputs, [record[number] for number in chosen], roots)
            deltas: list[list[Tensor]] = [[] for _ in record]
            for number, several in zip(chosen, returned, strict=True):
                deltas[number] = several
            yield Pass(part, record, deltas)


class Begun(NamedTuple):
    """A pass forward.

    Attributes:
        part: its models and samples.
        rest: the passes behind it.
        outputs: of the networks.
        record: uses of parameters.
    """

    part: Part
    rest: Iterator[Part]
    outputs: Tensor
    record: list[AnyUse]


def backward(
    ends: Tensor | Sequence[Tensor],
    record: Sequence[AnyUse],
    roots: Tensor,
    *,
    keeps_graph: bool = False,
) -> list[list[Tensor]]:
    """Return what comes back through the outputs of each use.

    Args:
        ends: where roots go in: outputs of the networks, (M, N, ...), or those of a
            use, of which there may be a tensor of each model.
        record: of the pass, or some of its uses.
        roots: what goes in at the end, (M, N, R, ...).
        keeps_graph: more roots will go back.

    Returns:
        Of each use R tensors of the shape of its outputs, with the models first.
    """
    ends = (ends,) if isinstance(ends, Tensor) else tuple(ends)
    number = roots.shape[2] if record else 0
    # Where memory alone is counted, what one root leaves is as large as any other's.
    derived = min(number, 1) if roots.is_meta else number
    deltas: list[list[Tensor]] = [[] for _ in record]
    for draw in range(derived):
        given = roots[:, :, draw]
        several = given.unbind(0) if len(ends) > 1 else (given,)
        slopes = torch.autograd.grad(
            ends,
            _tensors(record),
            [
                cotangent.reshape(end.shape)
                for cotangent, end in zip(several, ends, strict=True)
            ],
            retain_graph=keeps_graph or draw + 1 < number,
            allow_unused=True,
        )
        for use, delta in enumerate(_by_use(record, slopes)):
            deltas[use].append(delta)
    for each in deltas:
        each += [torch.empty_like(each[0]) for _ in range(number - derived)]
    return deltas


def accounted(
    of: Recorded, places: Places, begun: Begun | None = None
) -> tuple[Read, list[AnyUse]]:
    """Sort the record of the first pass, and leave out what it cannot account for.

    The gradient of each of two samples must be the one by its outer products: else a
    tensor has uses that are not recorded, or samples are mixed up in it. Where they
    are, rows may stand token by token. It is not tried of networks that note all uses.

    Args:
        of: networks and data.
        places: of the tensors looked at.
        begun: the first pass of networks that note all uses.

    Returns:
        Layers, scales and the rest; and the record.

    Raises:
        InputError: outputs or their derivatives are not finite.
    """
    if begun is not None and of.notes_all:
        return read(begun.record, places), begun.record
    outputs, record, weights = of.forward(next(of.parts()).first(2))
    reading = read(record, places)
    reading = _without(
        reading, record, _unshared(reading, record, outputs.shape[1]), places
    )
    if outputs.is_meta:  # memory is counted, and there are no numbers to compare
        return reading, record
    tried = [
        _tried(outputs, weights, record, sample) for sample in range(outputs.shape[1])
    ]
    wrong = _wrong(reading, record, tried, of.starts())
    reading = replace(
        reading,
        layers=tuple(
            replace(layer, tokens_first=bool({layer.weight, layer.bias} & wrong))
            for layer in reading.layers
        ),
    )
    if wrong:
        wrong = _wrong(reading, record, tried, of.starts())
    return _without(reading, record, wrong, places), record


def _unshared(reading: Read, record: Sequence[AnyUse], samples: int) -> set[str]:
    """Return names of tensors that meet what samples have no equal part in.

    Such as tables of positions, which all samples have in common.
    """
    unshared = {
        layer.weight
        for layer in reading.layers
        for use in map(layer.ordered, (record[number] for number in layer.uses))
        if not use.form.divides(use.inputs, layer.shape, samples)
    }
    for number in reading.scalings:
        use = record[number]
        assert isinstance(use, Scaling)
        if use.multiplied.shape[1] != samples:
            unshared.add(use.weight)
    return unshared


class _Tried(NamedTuple):
    """Derivatives of the outputs of one sample.

    Attributes:
        sample: its number.
        samples: of the pass.
        gradient: by all parameters, (M, D).
        deltas: what comes back through each use, as a pass has it.
    """

    sample: int
    samples: int
    gradient: Tensor
    deltas: list[list[Tensor]]


def _tried(
    outputs: Tensor, weights: Tensor, record: Sequence[AnyUse], sample: int
) -> _Tried:
    """Return derivatives of one sample's outputs.

    Raises:
        InputError: they are not finite.
    """
    root = torch.zeros_like(outputs)
    root[:, sample] = _probe(outputs[:, sample])
    wanted = [weights, *_tensors(record)]
    gradient, *back = torch.autograd.grad(
        outputs, wanted, root, allow_unused=True, retain_graph=True
    )
    check_finite([gradient])
    deltas = [[delta] for delta in _by_use(record, back)]
    return _Tried(sample, outputs.shape[1], gradient, deltas)


def _wrong(
    reading: Read,
    record: Sequence[AnyUse],
    several: Sequence[_Tried],
    starts: Mapping[str, int],
) -> set[str]:
    """Return the names of tensors whose gradients are not those of the record."""
    wrong: set[str] = set()
    for tried in several:
        for name, expected, size in _gradients(reading, record, tried):
            start = starts[name]
            given = tried.gradient[:, start : start + expected.shape[1]]
            # What is added up may cancel, so that it is its size that rounding goes by.
            off = (given - expected).norm(dim=1)
            if not (off <= AGREES.get(given.dtype, 1e-3) * size).all():
                wrong.add(name)
    return wrong


def _without(
    reading: Read, record: Sequence[AnyUse], wrong: set[str], places: Places
) -> Read:
    """Return a record without the layers and scales of some tensors."""

    def is_known(entry: Layer | AnyUse) -> bool:
        return not {entry.weight, entry.bias} & wrong

    layers = tuple(filter(is_known, reading.layers))
    scalings = tuple(n for n in reading.scalings if is_known(record[n]))
    uses = [record[number] for number in scalings]
    known = {name for entry in (*layers, *uses) for name in (entry.weight, entry.bias)}
    rest = tuple(name for name in places.start if name not in known)
    return Read(layers, scalings, rest)


def check_finite(derivatives: Sequence[Tensor]) -> None:
    """Refuse derivatives that are not finite.

    Raises:
        InputError: one is not.
    """
    # NaN and infinity are in the sum as well.
    total = torch.stack([derivative.sum() for derivative in derivatives]).sum()
    if not total.is_meta and not math.isfinite(total.item()):
        raise InputError(
            "weights: expected finite derivatives of the outputs, got NaN or infinity. "
            "Take weights from before training diverged, or float64."
        )


def _tensors(record: Sequence[AnyUse]) -> list[Tensor]:
    return [tensor for use in record for tensor in use.outputs]


def _by_use(
    record: Sequence[AnyUse], slopes: Sequence[Tensor | None]
) -> Iterator[Tensor]:
    """Yield what comes back through each use's outputs, zeros where nothing does."""
    left = iter(slopes)
    for use in record:
        several = [next(left) for _ in use.outputs]
        deltas = [
            torch.zeros_like(out) if delta is None else delta
            for out, delta in zip(use.outputs, several, strict=True)
        ]
        yield torch.stack(deltas) if use.apart else deltas[0]


def _gradients(
    reading: Read, record: Sequence[AnyUse], tried: _Tried
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield gradients of a sample, as the record has them.

    Yields:
        Name of a tensor, its gradient (M, size), and the sum of the lengths of what is
        added up in it, (M,).
    """
    at, deltas = tried.sample, tried.deltas
    for layer in reading.layers:
        sides = [pair for _, pair in layer.sides(record, deltas, tried.samples)]
        parts = [(pair.left[:, at, 0], pair.right[:, at, 0]) for pair in sides]
        lengths = [(left.norm(dim=-1), right.norm(dim=-1)) for left, right in parts]
        by_weight = torch.stack([left.mT @ right for left, right in parts]).sum(0)
        sizes = [(left * right).flatten(1).sum(1) for left, right in lengths]
        yield layer.weight, by_weight.flatten(1), torch.stack(sizes).sum(0)
        if layer.bias is not None:
            by_bias = torch.stack([left.sum(2) for left, _ in parts]).sum(0)
            sizes = [left.flatten(1).sum(1) for left, _ in lengths]
            yield layer.bias, by_bias.flatten(1), torch.stack(sizes).sum(0)
    for number in reading.scalings:
        use = record[number]
        assert isinstance(use, Scaling)
        (delta,) = deltas[number]
        both = torch.tensor_split(
            use.rows(delta)[:, at], 1 if use.bias is None else 2, 1
        )
        sizes = [
            (delta * use.multiplied)[:, at].abs().flatten(1).sum(1),
            delta[:, at].abs().flatten(1).sum(1),
        ]
        names = [name for name in (use.weight, use.bias) if name is not None]
        yield from zip(names, both, sizes, strict=False)


def _probe(like: Tensor) -> Tensor:
    """Return numbers of different sizes and signs, of the shape of a tensor."""
    numbers = torch.arange(like[0].numel(), dtype=like.dtype, device=like.device)
    return (1.5 + numbers.cos()).reshape(like[0].shape).expand_as(like)
