"""Mean losses of chains about dense networks, without automatic differentiation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

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
from curvflow.tasks.numerics.disk_tensors import DiskTensor

# Bytes that the activations of one chain may take in one pass.
CHAIN_BYTES = 1 << 23

# Bytes of activations of chains in one pass, about what a core's cache holds. A chain
# that takes more goes alone, which does not depend on the other chains.
PASS_BYTES = {"cpu": 1 << 22, "cuda": 1 << 30}


class DenseLosses:
    """Mean losses of chains of one form, over shared data or over those of each.

    Weights must not require gradients, as memory is written over.
    """

    def __init__(
        self,
        form: DenseForm,
        loss: str,
        inputs: Tensor,
        targets: Tensor,
        owner_C: Tensor,
    ) -> None:
        """Describe the chains.

        Args:
            form: of their networks.
            loss: `cross_entropy`, `mse` or `sse`.
            inputs: shape (M or 1, N, ...); 1 shares the data between all chains.
            targets: labels (M or 1, N) or values (M or 1, N, O).
            owner_C: number of the target, of M, that a chain belongs to.
        """
        self._form, self._owner = form, owner_C
        self._inputs, self._targets = inputs, targets
        self._on_disk = inputs if isinstance(inputs, DiskTensor) else None
        # Of samples on disk there is one, which says of what type they are.
        rows = inputs if self._on_disk is None else self._on_disk[:, :1]
        self._input_rows, self._target_rows = _flat(rows), _flat(targets)
        self._is_shared = len(inputs) == 1
        self._loss = cross_entropy_loss if loss == "cross_entropy" else squared_loss
        self._share = 1 / targets.shape[2] if loss == "mse" else 1.0
        self._bytes = 2 * sum(form.widths) * inputs.element_size()
        self._pass_bytes = PASS_BYTES.get(inputs.device.type, PASS_BYTES["cpu"])
        self._rooms: dict[tuple[int, int], Room] = {}
        self._cuts: dict[tuple[int, int], list[Layer]] = {}
        self._cut_weights: Tensor | None = None
        self._gradients: Tensor | None = None
        self._gradient_cuts: dict[tuple[int, int], list[Layer]] = {}

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        return self._computed(weights_CD, rows_CB, None)

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.

        Returns:
            Both, the gradients in memory that the next call writes over.
        """
        if self._gradients is None:
            self._gradients = torch.empty_like(weights_CD)
        return self._computed(weights_CD, rows_CB, self._gradients), self._gradients

    def _computed(
        self, weights_CD: Tensor, rows_CB: Tensor | None, into_CD: Tensor | None
    ) -> Tensor:
        """Return the mean losses, and write the gradients if requested."""
        if weights_CD is not self._cut_weights:
            self._cut_weights, self._cuts = weights_CD, {}
        count = self._inputs.shape[1] if rows_CB is None else rows_CB.shape[1]
        # It does not depend on how many chains there are, nor does the order of sums.
        step = min(count, max(1, CHAIN_BYTES // self._bytes))
        most = self._pass_bytes // (self._bytes * step)
        if rows_CB is not None and not self._is_shared:
            rows_CB = rows_CB + self._owner[:, None] * self._inputs.shape[1]
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
        """Return the layers of some chains; cutting costs more than a look-up."""
        if (first, stop) not in cuts:
            cuts[first, stop] = cut(self._form, weights_CD[first:stop])
        return cuts[first, stop]

    def _summed(
        self,
        layers: list[Layer],
        into: list[Layer] | None,
        passes: Iterator[tuple[Room, Tensor, Tensor]],
        each: float,
    ) -> Tensor:
        """Return the mean losses of some chains from passes over parts of the data."""
        losses_C = None
        for room, inputs_CBI, targets in passes:
            outputs_CBO, seen = forward(self._form, layers, room, inputs_CBI)
            back_CBO = None if into is None else room.other[-1]
            part_C = self._loss(outputs_CBO, targets, back_CBO, each)
            if into is not None:
                adds = losses_C is not None
                backward(self._form, layers, room, seen, into, adds=adds)
            losses_C = part_C if losses_C is None else losses_C + part_C
        assert losses_C is not None
        return losses_C

    def _passes(
        self, rows_CB: Tensor | None, first: int, stop: int, step: int
    ) -> Iterator[tuple[Room, Tensor, Tensor]]:
        """Yield inputs and targets of some chains, a part at a time, with memory."""
        count = self._inputs.shape[1] if rows_CB is None else rows_CB.shape[1]
        for begin in range(0, count, step):
            rows = slice(begin, min(begin + step, count))
            room = self._room(stop - first, rows.stop - rows.start)
            if rows_CB is None:
                inputs = self._inputs[:, rows].flatten(2)
                targets = self._targets[:, rows]
                if not self._is_shared:
                    owner_C = self._owner[first:stop]
                    inputs, targets = inputs[owner_C], targets[owner_C]
                yield room, inputs.expand(stop - first, -1, -1), targets
            else:
                is_all = rows_CB.shape == (stop - first, rows.stop - rows.start)
                chosen_CB = rows_CB if is_all else rows_CB[first:stop, rows]
                yield room, *self._taken(chosen_CB, room)

    def _taken(self, rows_CB: Tensor, room: Room) -> tuple[Tensor, Tensor]:
        rows_R = rows_CB.flatten()
        if self._on_disk is not None:
            room.flat.copy_(self._on_disk.rows(rows_R).flatten(1))
        else:
            torch.index_select(self._input_rows, 0, rows_R, out=room.flat)
        targets = self._target_rows.index_select(0, rows_R)
        return room.inputs, targets.view(*rows_CB.shape, *targets.shape[1:])

    def _room(self, chains: int, samples: int) -> Room:
        size = (chains, samples)
        if size not in self._rooms:
            self._rooms[size] = Room(self._form, chains, samples, self._input_rows)
        return self._rooms[size]


def _flat(data: Tensor) -> Tensor:
    """Return the samples of all targets one below another, as vectors."""
    rows = data.flatten(0, 1)
    return rows.flatten(1) if rows.ndim > 2 else rows


@lru_cache(maxsize=64)
def _spans(chains: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of chains in one pass; single ones if two are too many."""
    if most < 2:
        return tuple((chain, chain + 1) for chain in range(chains))
    return tuple((span.start, span.stop) for span in spans(chains, most))
