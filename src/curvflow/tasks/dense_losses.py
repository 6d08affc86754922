"""Losses that chains of dense networks are sampled on, without autograd."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.tasks.numerics.dense_gradients import (
    DenseForm,
    Layer,
    Room,
    backward,
    cross_entropy_loss,
    cut,
    forward,
    squared_loss,
)
from curvflow.tasks.numerics.spans import spans
from curvflow.tasks.problems import Samples

# Bytes of activations that chains take together, about what a core's cache holds. A
# chain that takes more goes alone; which way it goes does not depend on the others.
PASS_BYTES = {"cpu": 1 << 22, "cuda": 1 << 30}

# The same of one chain: more samples go part by part.
CHAIN_BYTES = 1 << 23


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
        self._pass_bytes = PASS_BYTES[samples.device.type]
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
