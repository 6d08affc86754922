"""Networks whose uses of parameters are recorded, pass by pass over data."""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, chain
from math import prod
from typing import NamedTuple, TypeVar

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
from curvflow.tasks.numerics.kronecker.uses import (
    AnyUse,
    Manner,
    Scaling,
    UnlikeModelsError,
    Use,
    unlike_names,
    without_names,
)

# From full weights (M, D + S) and inputs to outputs and the record of uses.
Call = Callable[[Tensor, Tensor], tuple[Tensor, list[AnyUse]]]

# Of a pass and its outputs (M, N, ...) to roots (M, N, R, ...), each sum over R of
# outer products a sample's matrix by its outputs.
Roots = Callable[[Part, Tensor], Tensor]

# Of a pass and its outputs (M, N, C) to the gradient of each sample's loss, (M, N, C).
Slopes = Callable[[Part, Tensor], Tensor]

# Samples by which the record of uses is tried; they are taken from all data.
MOST_TRIED = 16

# Gradients by uses and by torch agree within this share of what is added up.
AGREES = {torch.float64: 1e-8, torch.float32: 1e-4}

Computed = TypeVar("Computed")


class UnlikeUsesError(Exception):
    """Some samples use a tensor in another way than others do, or may do so."""

    def __init__(self, names: Set[str]) -> None:
        """Take the names of the tensors; none where uses of a pass are doubtful."""
        super().__init__(", ".join(sorted(names)))
        self.names = names


@dataclass(frozen=True)
class Uniform:
    """Uses of tensors that all passes have, so that records have the same numbers.

    Attributes:
        unlike: names of tensors that samples do not use alike, whose uses are left out.
        expected: uses of each pass; None where they are not compared.
        known: names of tensors of which rows are compared, too.
        takes_doubtful: doubtful uses are taken, as where all samples are tried.
    """

    unlike: frozenset[str] = frozenset()
    expected: tuple[Manner, ...] | None = None
    known: frozenset[str] = frozenset()
    takes_doubtful: bool = False

    def kept(self, record: Sequence[AnyUse], samples: int) -> list[AnyUse]:
        """Return the uses that something comes back through.

        Args:
            record: of a pass.
            samples: that it has.

        Raises:
            UnlikeUsesError: they are not those of other passes.
            UnlikeModelsError: models have others each.
        """
        known = without_names(record, self.unlike)
        apart = {use.weight for use in known if isinstance(use, Use) and use.is_unlike}
        if apart:
            raise UnlikeModelsError(apart)
        # Nothing comes back through what is computed with gradients switched off, and
        # nothing is in the rows of no samples.
        kept = [
            use
            for use in known
            if all(t.requires_grad and t.numel() for t in use.outputs)
        ]
        if self.expected is not None:
            manners = self._manners(kept, samples)
            unlike = unlike_names(self.expected, manners)
            if unlike or not (self.takes_doubtful or self.is_certain(kept)):
                raise UnlikeUsesError(unlike)
        return kept

    def is_certain(self, record: Sequence[AnyUse]) -> bool:
        """Return whether a few samples do to try uses of layers."""
        return not any(u.is_doubtful for u in record if u.weight in self.known)

    def like(self, reading: Read, record: Sequence[AnyUse], samples: int) -> Uniform:
        """Return what passes like a given one have to be; see `Recorded.expecting`."""
        names = {layer.weight for layer in reading.layers}
        names |= {record[number].weight for number in reading.scalings}
        those = replace(self, known=frozenset(names))
        takes = self.takes_doubtful or not those.is_certain(record)
        manners = those._manners(record, samples)
        return replace(those, expected=manners, takes_doubtful=takes)

    def _manners(self, record: Sequence[AnyUse], samples: int) -> tuple[Manner, ...]:
        """Return the uses of a pass as those of any other have to be."""

        def how(use: AnyUse) -> Hashable:
            if use.weight not in self.known:
                return None
            first, form = use.outputs[0], use.form if isinstance(use, Use) else None
            entries = first.numel() // (1 if use.apart else len(first))
            return use.bias, form, Fraction(entries, samples)

        return tuple(Manner(use.weight, use.bias, how(use)) for use in record)


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
        variances: from outputs (M, N, C) to the diagonals of what roots are of, of a
            loss whose matrices are diagonal; None of others.
        manner: of uses, which is that of each pass.
        unselected: shapes of weights that are not among the parameters, but known as
            the layers of biases that are.
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
    variances: Callable[[Tensor], Tensor] | None = None
    manner: Uniform = field(default_factory=Uniform)
    unselected: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

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
        return outputs, self.manner.kept(record, outputs.shape[1]), weights

    def expecting(
        self, reading: Read, record: Sequence[AnyUse], samples: int
    ) -> Recorded:
        """Return these with passes that have to be like another one.

        Args:
            reading: of its record.
            record: of that one.
            samples: that it has.
        """
        return replace(self, manner=self.manner.like(reading, record, samples))

    def few(self) -> Part:
        """Return a part of few samples, from all data, of models of the first pass."""
        first = next(self.parts())
        count = min(MOST_TRIED, self.batch_size, self.num_samples)
        rows = torch.arange(count, device=self.inputs.device) * self.num_samples
        rows = rows.div(count, rounding_mode="floor")
        models = slice(None) if len(self.inputs) == 1 else first.models
        return replace(
            first,
            rows=slice(0, count),
            inputs=self.inputs[models][:, rows],
            targets=self.targets[models][:, rows],
        )

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


def alike(of: Recorded, compute: Callable[[Recorded], Computed]) -> Computed:
    """Compute something of networks whose samples use their tensors alike.

    A tensor that some use in another way than others do, as where numbers decide which
    samples go through a layer, is counted among those without recorded uses.

    Args:
        of: networks and data.
        compute: computes with their passes.

    Returns:
        The result.
    """
    while True:
        try:
            return compute(of)
        except UnlikeUsesError as error:
            unlike = of.manner.unlike | error.names
            takes_doubtful = of.manner.takes_doubtful or not error.names
            of = replace(of, manner=Uniform(unlike, takes_doubtful=takes_doubtful))


def accounted(
    of: Recorded, places: Places, begun: Begun | None = None
) -> tuple[Read, list[AnyUse]]:
    """Sort the record of a pass, and leave out what it cannot account for.

    The gradient of some samples, once of each half of them, must be the one by outer
    products: else a tensor has uses that are not recorded, or samples are mixed up in
    it. Where they are, rows may stand token by token. Where something else is computed
    of a tensor, it is tried of all samples. It is not tried of networks that note all
    uses.

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
    outputs, record, weights = of.forward(of.few())
    reading = read(record, places)
    samples = outputs.shape[1]
    reading = _without(reading, record, _unshared(reading, record, samples), places)
    if outputs.is_meta:  # memory is counted, and there are no numbers to compare
        return reading, record
    tried = list(_tried(outputs, weights, record))
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
    reading = _without(reading, record, wrong, places)
    return _beyond_doubt(
        of.expecting(reading, record, samples), reading, record, places
    )


def _beyond_doubt(
    of: Recorded, reading: Read, record: list[AnyUse], places: Places
) -> tuple[Read, list[AnyUse]]:
    """Return a record without what all samples do not confirm, where it is doubtful.

    What else is computed of a tensor may come to nothing of those tried, as behind a
    ReLU; and each of these may have as many rows.
    """
    if not of.manner.takes_doubtful:
        return reading, record
    wrong: set[str] = set()
    for part in of.parts():
        outputs, found, weights = of.forward(part)
        tried = _tried(outputs, weights, found)
        wrong |= _wrong(reading, found, tried, of.starts())
    return _without(reading, record, wrong, places), record


def check_confirmed(
    reading: Read,
    record: Sequence[AnyUse],
    outputs: Tensor,
    weights: Tensor,
    starts: Mapping[str, int],
) -> None:
    """Refuse a pass whose gradients are not those of its record.

    Nothing is asked of models whose gradients are no numbers.

    Args:
        reading: of the record.
        record: of the pass.
        outputs: of the networks, (M, N, ...).
        weights: that they are derived by, (M, D).
        starts: where each tensor begins in the weights.

    Raises:
        UnlikeUsesError: those of some tensors are others.
        UnlikeModelsError: they are of some models.
    """
    tried = _tried(outputs, weights, record, checks=False)
    if wrong := _wrong(reading, record, tried, starts):
        raise UnlikeUsesError(wrong)


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
    """Derivatives of the outputs of some samples.

    Attributes:
        chosen: their numbers.
        samples: of the pass.
        gradient: by all parameters, (M, D).
        deltas: what comes back through each use, as a pass has it.
    """

    chosen: Tensor
    samples: int
    gradient: Tensor
    deltas: list[list[Tensor]]


def _tried(
    outputs: Tensor, weights: Tensor, record: Sequence[AnyUse], *, checks: bool = True
) -> Iterator[_Tried]:
    """Yield derivatives of parts of the samples, so that no two are in all the same.

    Raises:
        InputError: they are not finite, and it is checked.
    """
    wanted = [weights, *_tensors(record)]
    for chosen in _halves(outputs.shape[1]):
        root = torch.zeros_like(outputs)
        root[:, chosen] = _probe(outputs[:, chosen])
        gradient, *back = torch.autograd.grad(
            outputs, wanted, root, allow_unused=True, retain_graph=True
        )
        if checks:
            check_finite([gradient])
        deltas = [[delta] for delta in _by_use(record, back)]
        yield _Tried(chosen, outputs.shape[1], gradient, deltas)


def _halves(samples: int) -> Iterator[Tensor]:
    """Yield the even numbers of samples, and those with a one at each binary place."""
    numbers = torch.arange(samples)
    yield numbers[numbers % 2 == 0]
    for place in range((samples - 1).bit_length()):
        yield numbers[(numbers >> place) % 2 == 1]


def _wrong(
    reading: Read,
    record: Sequence[AnyUse],
    several: Iterable[_Tried],
    starts: Mapping[str, int],
) -> set[str]:
    """Return the names of tensors whose gradients are not those of the record.

    Raises:
        UnlikeModelsError: they are those of some models alone.
    """
    wrong: set[str] = set()
    for tried in several:
        for name, expected, size in _gradients(reading, record, tried):
            if name not in starts:  # of a bias alone, whose weight is left out
                continue
            start = starts[name]
            given = tried.gradient[:, start : start + expected.shape[1]]
            # What is added up may cancel, so that it is its size that rounding goes by.
            off = (given - expected).norm(dim=1)
            is_off_M = off > AGREES.get(given.dtype, 1e-3) * size
            if is_off_M.any() and not is_off_M.all():
                raise UnlikeModelsError({name})
            if is_off_M.any():
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
    """Yield gradients of some samples, as the record has them.

    Yields:
        Name of a tensor, its gradient (M, size), and the sum of the lengths of what is
        added up in it, (M,).
    """
    chosen, deltas = tried.chosen, tried.deltas

    def joined(rows: Tensor) -> Tensor:
        """Return rows (M, N, 1, G, T, K) of the samples, (M, G, N T, K)."""
        return rows[:, chosen, 0].transpose(1, 2).flatten(2, 3)

    for layer in reading.layers:
        sides = [pair for _, pair in layer.sides(record, deltas, tried.samples)]
        parts = [(joined(pair.left), joined(pair.right)) for pair in sides]
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
        rows = use.rows(delta)[:, chosen].sum(1)
        both = torch.tensor_split(rows, 1 if use.bias is None else 2, 1)
        sizes = [
            (delta * use.multiplied)[:, chosen].abs().flatten(1).sum(1),
            delta[:, chosen].abs().flatten(1).sum(1),
        ]
        names = [name for name in (use.weight, use.bias) if name is not None]
        yield from zip(names, both, sizes, strict=False)


def _probe(like: Tensor) -> Tensor:
    """Return numbers of different sizes and signs, of the shape of a tensor."""
    numbers = torch.arange(like[0].numel(), dtype=like.dtype, device=like.device)
    return (1.5 + numbers.cos()).reshape(like[0].shape).expand_as(like)
