"""Losses that chains are sampled on; of dense networks without autograd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from curvflow.schemas.models import parse_model
from curvflow.schemas.models.autoencoder import Autoencoder
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.models.logistic import Logistic
from curvflow.schemas.models.mlp import Mlp
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.numerics.derivatives.batches import sample_losses
from curvflow.tasks.numerics.derivatives.dense_gradients import (
    DenseForm,
    Layer,
    Room,
    backward,
    cross_entropy_loss,
    cut,
    forward,
    squared_loss,
)
from curvflow.tasks.numerics.derivatives.passes import spans

# Bytes of activations that chains take together, about what a core's cache holds. A
# chain that takes more goes alone; which way it goes does not depend on the others.
DENSE_PASS_BYTES = {"cpu": 1 << 22, "cuda": 1 << 30}


class DenseLosses:
    """Mean losses of chains of one form, each over data of its own or shared.

    Weights must not require gradients: what is computed is written over.
    """

    def __init__(
        self, form: DenseForm, loss: str, samples: Samples, owner_C: Tensor
    ) -> None:
        """Describe the chains.

        Args:
            form: of their networks.
            loss: `cross_entropy`, `mse` or `sse`.
            samples: of all chains if their data are one, else of each member.
            owner_C: the member that a chain belongs to.
        """
        self._form, self._owner = form, owner_C
        self._samples = Samples(samples.inputs.flatten(2), samples.targets)
        self._rows = Samples(*(_flat(one) for one in (samples.inputs, samples.targets)))
        self._is_shared = len(samples.inputs) == 1
        self._loss = cross_entropy_loss if loss == "cross_entropy" else squared_loss
        self._share = 1 / samples.num_targets if loss == "mse" else 1.0
        self._bytes = 2 * sum(form.widths) * samples.inputs.element_size()
        self._pass_bytes = DENSE_PASS_BYTES[samples.device.type]
        self._rooms: dict[tuple[int, int], Room] = {}
        self._cuts: dict[tuple[int, int], list[Layer]] = {}
        self._cut_weights: Tensor | None = None
        self._gradients: Tensor | None = None
        self._gradient_cuts: dict[tuple[int, int], list[Layer]] = {}

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        return self._walked(weights_CD, rows_CB, None)

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.

        Returns:
            Both, the gradients in memory that the next call writes over.
        """
        if self._gradients is None:
            self._gradients = torch.empty_like(weights_CD)
        return self._walked(weights_CD, rows_CB, self._gradients), self._gradients

    def _walked(
        self, weights_CD: Tensor, rows_CB: Tensor | None, into_CD: Tensor | None
    ) -> Tensor:
        """Return the mean losses, and leave the gradients if they are wanted."""
        if weights_CD is not self._cut_weights:
            self._cut_weights, self._cuts = weights_CD, {}
        count = self._samples.count if rows_CB is None else rows_CB.shape[1]
        # It does not depend on how many chains there are, nor does the order of sums.
        step = min(count, max(1, CHAIN_BYTES // self._bytes))
        most = self._pass_bytes // (self._bytes * step)
        if rows_CB is not None and not self._is_shared:
            rows_CB = rows_CB + self._owner[:, None] * self._samples.count
        parts = []
        for first, stop in _spans(weights_CD.shape[0], most):
            layers = self._layers(self._cuts, weights_CD, first, stop)
            into = None
            if into_CD is not None:
                into = self._layers(self._gradient_cuts, into_CD, first, stop)
            passes = self._passes(rows_CB, first, stop, step)
            parts.append(self._summed(layers, into, passes, self._share / count))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _layers(
        self,
        cuts: dict[tuple[int, int], list[Layer]],
        weights_CD: Tensor,
        first: int,
        stop: int,
    ) -> list[Layer]:
        """Return the layers of some chains; to cut costs more than to look up."""
        if (first, stop) not in cuts:
            cuts[first, stop] = cut(self._form, weights_CD[first:stop])
        return cuts[first, stop]

    def _summed(
        self,
        layers: list[Layer],
        into: list[Layer] | None,
        passes: Iterator[tuple[Room, Samples]],
        each: float,
    ) -> Tensor:
        """Return the mean losses of some chains from passes over parts of the data."""
        losses_C = None
        for room, samples in passes:
            outputs_CBO, seen = forward(self._form, layers, room, samples.inputs)
            back_CBO = None if into is None else room.other[-1]
            part_C = self._loss(outputs_CBO, samples.targets, back_CBO, each)
            if into is not None:
                adds = losses_C is not None
                backward(self._form, layers, room, seen, into, adds=adds)
            losses_C = part_C if losses_C is None else losses_C + part_C
        assert losses_C is not None
        return losses_C

    def _passes(
        self, rows_CB: Tensor | None, first: int, stop: int, step: int
    ) -> Iterator[tuple[Room, Samples]]:
        """Bring samples of some chains, so many at a time, each with a room."""
        count = self._samples.count if rows_CB is None else rows_CB.shape[1]
        for begin in range(0, count, step):
            rows = slice(begin, min(begin + step, count))
            room = self._room(stop - first, rows.stop - rows.start)
            if rows_CB is None:
                samples = self._samples.rows(rows).models(self._owner[first:stop])
                inputs_CBI = samples.inputs.expand(stop - first, -1, -1)
                yield room, Samples(inputs_CBI, samples.targets)
            else:
                is_all = rows_CB.shape == (stop - first, rows.stop - rows.start)
                chosen_CB = rows_CB if is_all else rows_CB[first:stop, rows]
                yield room, self._taken(chosen_CB, room)

    def _taken(self, rows_CB: Tensor, room: Room) -> Samples:
        rows_R = rows_CB.flatten()
        torch.index_select(self._rows.inputs, 0, rows_R, out=room.flat)
        targets = self._rows.targets.index_select(0, rows_R)
        return Samples(room.inputs, targets.view(*rows_CB.shape, *targets.shape[1:]))

    def _room(self, chains: int, samples: int) -> Room:
        size = (chains, samples)
        if size not in self._rooms:
            like = self._rows.inputs
            self._rooms[size] = Room(self._form, chains, samples, like)
        return self._rooms[size]


def _flat(data: Tensor) -> Tensor:
    """Return the samples of all members one below another, as vectors."""
    rows = data.flatten(0, 1)
    return rows.flatten(1) if rows.ndim > 2 else rows


@lru_cache(maxsize=64)
def _spans(chains: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of chains that go together; alone if two are too many."""
    if most < 2:
        return tuple((chain, chain + 1) for chain in range(chains))
    return tuple((span.start, span.stop) for span in spans(chains, most))


def dense_form(problem: Problem) -> DenseForm | None:
    """Return the form of a problem's network, or None if it is no such network.

    Dropout makes no difference: what is described is the network when not in training.

    Args:
        problem: its text tells the model.
    """
    model = parse_model(json.loads(problem.text)["model"])
    hidden_activation, linear = "identity", tuple[int, ...]()
    if isinstance(model, Mlp):
        hidden_activation, linear = model.activation, model.linear_layers
    elif isinstance(model, Autoencoder):
        hidden_activation = model.activation
        linear = (len(model.hidden),) if model.linear_code else ()
    elif not isinstance(model, DeepLinear | Linear | Logistic):
        return None
    layout = problem.network.layout
    weights = [shape for shape in layout.shapes if len(shape) == 2]
    return DenseForm(
        widths=(weights[0][1], *(after for after, _ in weights)),
        activations=tuple(
            "identity" if number in linear else hidden_activation
            for number in range(1, len(weights))
        ),
        bias=len(layout.shapes) > len(weights),
        has_reference=isinstance(model, Logistic),
    )


# Bytes that the activations of all chains may take in one pass. On a CPU a pass stays
# below the allocator's threshold for mapped memory, beyond which page faults cost more
# than what the wider pass saves.
PASS_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30}

# The same of one chain.
CHAIN_BYTES = 1 << 23


@dataclass(frozen=True)
class SampledLosses:
    """Mean losses of chains, the statistics of their networks held fixed.

    Attributes:
        problem: network and loss.
        samples: of all chains if their data are one, else of each member.
        statistics: such as a batch norm's running means, of each chain, (C, S).
        owner: the member that a chain belongs to, (C,).
    """

    problem: Problem
    samples: Samples
    statistics: Tensor
    owner: Tensor

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        return self.samples.count

    @cached_property
    def _dense(self) -> DenseLosses | None:
        """The same without autograd, where the network is dense layers alone."""
        form = dense_form(self.problem)
        if form is None:
            return None
        return DenseLosses(form, self.problem.loss, self.samples, self.owner)

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        if self._dense is not None:
            return self._dense.values(_plain(weights_CD), rows_CB)
        with torch.no_grad():
            (losses_C,) = self._summed(weights_CD, rows_CB)
        return losses_C

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.

        Returns:
            Both; the gradients may be in memory that the next call writes over.
        """
        if self._dense is not None:
            return self._dense.gradients(_plain(weights_CD), rows_CB)
        losses_C, gradients_CD = self._summed(
            weights_CD.detach().requires_grad_(), rows_CB
        )
        return losses_C, gradients_CD

    def _summed(self, weights_CD: Tensor, rows_CB: Tensor | None) -> tuple[Tensor, ...]:
        """Return mean losses, with their gradients where the weights want them."""
        count = self.num_samples if rows_CB is None else rows_CB.shape[1]
        each = self.problem.network.width * weights_CD.element_size()
        # It does not depend on how many chains there are, nor does the order of sums.
        step = max(1, CHAIN_BYTES // each)
        most = PASS_BYTES[weights_CD.device.type] // (each * min(step, count))
        parts = [
            self._of_chains(weights_CD, rows_CB, span, step)
            for span in spans(len(weights_CD), most)
        ]
        if len(parts) == 1:
            return parts[0]
        return tuple(torch.cat(several) for several in zip(*parts, strict=True))

    def _of_chains(
        self, weights_CD: Tensor, rows_CB: Tensor | None, chains: slice, step: int
    ) -> tuple[Tensor, ...]:
        """Return the same of some chains, so many samples at a time."""
        count = self.num_samples if rows_CB is None else rows_CB.shape[1]
        parts = []
        for first in range(0, count, step):
            rows = slice(first, first + step)
            if rows_CB is None:
                samples = self.samples.rows(rows).models(self.owner[chains])
            else:
                samples = self._taken(rows_CB[chains, rows], chains)
            parts.append(self._one_pass(weights_CD, chains, samples, count))
        if len(parts) == 1:
            return parts[0]
        return tuple(
            torch.stack(several).sum(0) for several in zip(*parts, strict=True)
        )

    def _one_pass(
        self, weights_CD: Tensor, chains: slice, samples: Samples, count: int
    ) -> tuple[Tensor, ...]:
        own_cD = weights_CD[chains].detach().requires_grad_(weights_CD.requires_grad)
        losses_C = self._losses(own_cD, self.statistics[chains], samples).sum(1) / count
        if not losses_C.requires_grad:
            return (losses_C,)
        (gradients_CD,) = torch.autograd.grad(losses_C.sum(), own_cD)
        return losses_C.detach(), gradients_CD

    def _losses(
        self, weights_CD: Tensor, statistics_CS: Tensor, samples: Samples
    ) -> Tensor:
        if statistics_CS.shape[1]:
            weights_CD = torch.cat([weights_CD, statistics_CS], dim=1)
        outputs_CNO = self.problem.network.outputs(weights_CD, samples.inputs)
        return sample_losses(self.problem.loss)(outputs_CNO, samples.targets)

    def _taken(self, rows_CB: Tensor, chains: slice) -> Samples:
        samples = self.samples
        if len(samples.inputs) == 1:
            return samples.taken(rows_CB)
        owner_C1 = self.owner[chains, None]
        return Samples(
            samples.inputs[owner_C1, rows_CB], samples.targets[owner_C1, rows_CB]
        )


def _plain(weights_CD: Tensor) -> Tensor:
    """Return weights that need no gradient: the same tensor if these need none."""
    return weights_CD.detach() if weights_CD.requires_grad else weights_CD
