"""Mean losses of chains about any torch module, with any loss and data.

Letters in addition to those of the package: C chains; B samples of a chain's batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import Batch, num_samples
from curvflow.tasks.numerics.derivatives.passes import peak_bytes, spans
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import Subject

# Bytes that activations may take in one pass, of one chain and of all.
CHAIN_BYTES = 1 << 23
PASS_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30}

# Samples on which the memory of a pass is measured.
MEASURED_SAMPLES = 4


def whole_batch(of: Subject) -> Batch:
    """Return all data as one batch, in memory.

    Args:
        of: the module, loss and data; tensors of a batch whose length is that of its
            first one hold samples, and others must be equal in all batches.

    Returns:
        A batch of the same structure.

    Raises:
        InputError: batches differ in structure, or in what does not hold samples.
    """
    batches = [tree_flatten(batch) for batch in of.batches()]
    counts = [num_samples(tree_unflatten(*batch)) for batch in batches]
    leaves, structure = batches[0]
    if any(other != structure for _, other in batches):
        raise InputError(
            "data: expected batches of one structure, got several. Return the same "
            "tuple or the same keys for every batch."
        )
    columns = zip(*(leaves for leaves, _ in batches), strict=True)
    joined = [_joined(column, counts) for column in columns]
    return tree_unflatten(joined or leaves, structure)


def _joined(column: Sequence[Any], counts: Sequence[int]) -> Any:
    pairs = list(zip(column, counts, strict=True))
    if all(_holds_samples(leaf, count) for leaf, count in pairs):
        return column[0] if len(column) == 1 else torch.cat(list(column))
    first = column[0]
    for leaf in column[1:]:
        tensors = isinstance(first, Tensor) and isinstance(leaf, Tensor)
        if not (torch.equal(first, leaf) if tensors else first == leaf):
            raise InputError(
                "data: expected what does not hold samples to be equal in all batches, "
                "got different values. Give every tensor of a batch one row a sample."
            )
    return first


def _holds_samples(leaf: Any, count: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == count


def _weighed(means: Tensor, share: Tensor | float) -> Tensor:
    """Return means by their share, 0 where it is 0, as the mean of nothing is NaN."""
    if isinstance(share, float):
        return means * share if share else torch.zeros_like(means)
    share = share.reshape(-1, *[1] * (means.ndim - 1))
    return torch.where(share > 0, means * share, 0.0)


def rows_of(batch: Batch, chosen: Tensor) -> Batch:
    """Return some samples of a batch, and whatever holds none as it is.

    Args:
        batch: of N samples.
        chosen: which of them, (N,).
    """
    count = num_samples(batch)
    return tree_map(
        lambda leaf: leaf[chosen] if _holds_samples(leaf, count) else leaf, batch
    )


class ModuleLosses:
    """Mean losses of chains, all at once by `vmap`, or one by one where that fails.

    Attributes:
        num_samples: number of samples, N.
        weights: how much each weighs in the mean, (N,); None if all weigh the same.
        is_vectorised: whether chains are computed together.
        bytes_per_sample: of activations of one chain.
    """

    def __init__(self, of: Subject) -> None:
        """Hold the data, try `vmap` and measure the memory of a pass.

        Args:
            of: the module, loss and data.

        Raises:
            InputError: batches do not form one, see `whole_batch`.
        """
        self._of, self._batch = of, whole_batch(of)
        self.num_samples = num_samples(self._batch)
        weights_N = of.weights_of(self._batch)
        are_alike = weights_N is None or bool((weights_N == weights_N[:1]).all())
        self.weights = None if are_alike else weights_N
        self.is_vectorised = self._vectorises()
        self.bytes_per_sample = self._measured_bytes()

    @property
    def num_counted(self) -> int:
        """Number of samples that weigh anything, n."""
        weights_N = self.weights
        return self.num_samples if weights_N is None else int((weights_N > 0).sum())

    def weight_of(self, batch: Batch) -> float:
        """Return how much a batch weighs in the mean over all."""
        weights_N = self._of.weights_of(batch)
        return num_samples(batch) if weights_N is None else float(weights_N.sum())

    def _shares(
        self, rows_CB: Tensor | None, rows: slice, count: int
    ) -> Tensor | float:
        """Return the share of a pass in the mean, of all chains or of each, (C,).

        Of a batch it is taken by the mean weight of all samples, so that the mean over
        batches is that over all samples.
        """
        weights_N = self.weights
        if weights_N is None:
            return float((rows.stop - rows.start) / count)
        if rows_CB is None:
            return float(weights_N[rows].sum() / weights_N.sum())
        of_batches_C: Tensor = weights_N[rows_CB[:, rows]].sum(1)
        shares_C: Tensor = of_batches_C / (weights_N.mean() * count)
        return shares_C

    def _vectorises(self) -> bool:
        weights_2D = self._of.weights.expand(2, -1)
        rows_22 = torch.zeros(2, 2, dtype=torch.int64, device=weights_2D.device)
        batches = {False: self._taken(rows_22), True: self._rows(slice(2))}
        try:
            # In each way that follows: a recurrent layer has rules for some of them.
            for (is_shared, batch), slopes in product(batches.items(), (True, False)):
                with nullcontext() if slopes else torch.no_grad():
                    self._together(
                        weights_2D, batch, with_gradients=slopes, is_shared=is_shared
                    )
        # A module or a loss may fail under vmap in any way.
        except Exception:
            return False
        return True

    def _measured_bytes(self) -> int:
        few = min(MEASURED_SAMPLES, max(1, self.num_samples // 2))
        weights_1D = self._of.weights[None]

        def peak(samples: int) -> int:
            batches = [self._rows(slice(samples))]
            return peak_bytes(
                lambda: self._one_by_one(weights_1D, batches, with_gradients=True)
            )

        return max(1, (peak(2 * few) - peak(few)) // few)

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        with torch.no_grad():
            losses_C, _ = self._summed(weights_CD, rows_CB, with_gradients=False)
        return losses_C

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        losses_C, gradients_CD = self._summed(weights_CD, rows_CB, with_gradients=True)
        assert gradients_CD is not None
        return losses_C, gradients_CD

    def sample_losses(self, weights_RD: Tensor, rows_R1: Tensor, _: Tensor) -> Tensor:
        """Return the loss of one sample each, (R, 1), differentiable by the weights.

        It is a loss as `gradient_variance` takes it, of the numbers of samples.

        Args:
            weights_RD: weights of each.
            rows_R1: number of the sample of each.
        """
        batch = self._taken(rows_R1)
        if self.is_vectorised:
            dims = (0, self._dims())
            losses_R = vmap(self._loss, dims, randomness="same")(weights_RD, batch)
        else:
            parts = [self._of_chain(batch, row) for row in range(len(weights_RD))]
            losses_R = torch.stack(
                [self._loss(w, b) for w, b in zip(weights_RD, parts, strict=True)]
            )
        if self.weights is not None:
            losses_R = losses_R * (self.weights[rows_R1[:, 0]] / self.weights.mean())
        return losses_R.unsqueeze(1)

    def parts(self, rows: int) -> Iterator[Batch]:
        """Yield the data in batches of so many samples."""
        for first in range(0, self.num_samples, rows):
            yield self._rows(slice(first, first + rows))

    def _summed(
        self, weights_CD: Tensor, rows_CB: Tensor | None, *, with_gradients: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return mean losses, and gradients if requested, in passes over chains."""
        weights_CD = weights_CD.detach()
        count = self.num_samples if rows_CB is None else rows_CB.shape[1]
        # It does not depend on the number of chains, nor does the order of sums.
        step = min(count, max(1, CHAIN_BYTES // self.bytes_per_sample))
        limit = PASS_BYTES.get(weights_CD.device.type, PASS_BYTES["cpu"])
        parts = [
            self._of_chains(
                weights_CD[chains],
                None if rows_CB is None else rows_CB[chains],
                count,
                step,
                with_gradients=with_gradients,
            )
            for chains in spans(
                len(weights_CD), limit // (self.bytes_per_sample * step)
            )
        ]
        losses_C = torch.cat([losses for losses, _ in parts])
        gradients = [part for _, part in parts if part is not None]
        return losses_C, torch.cat(gradients) if gradients else None

    def _of_chains(
        self,
        weights_CD: Tensor,
        rows_CB: Tensor | None,
        count: int,
        step: int,
        *,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the same of some chains, a part of the samples at a time."""
        losses_C, gradients_CD = None, None
        for first in range(0, count, step):
            rows = slice(first, min(first + step, count))
            share = self._shares(rows_CB, rows, count)
            part_C, part_CD = self._pass(
                weights_CD, rows_CB, rows, with_gradients=with_gradients
            )
            part_C = _weighed(part_C, share)
            losses_C = part_C if losses_C is None else losses_C + part_C
            if part_CD is not None:
                part_CD = _weighed(part_CD, share)
                gradients_CD = (
                    part_CD if gradients_CD is None else gradients_CD + part_CD
                )
        assert losses_C is not None  # there is no mean over no samples
        return losses_C, gradients_CD

    def _pass(
        self,
        weights_CD: Tensor,
        rows_CB: Tensor | None,
        rows: slice,
        *,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor | None]:
        is_shared = rows_CB is None
        batch = self._rows(rows) if rows_CB is None else self._taken(rows_CB[:, rows])
        if self.is_vectorised:
            return self._together(
                weights_CD, batch, with_gradients=with_gradients, is_shared=is_shared
            )
        batches = [
            batch if is_shared else self._of_chain(batch, chain)
            for chain in range(len(weights_CD))
        ]
        return self._one_by_one(weights_CD, batches, with_gradients=with_gradients)

    def _together(
        self,
        weights_CD: Tensor,
        batch: Batch,
        *,
        with_gradients: bool,
        is_shared: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        dims = (0, None if is_shared else self._dims())
        with differentiable():
            if not with_gradients:
                mean = vmap(self._loss, dims, randomness="same")
                return mean(weights_CD, batch), None
            gradients_CD, losses_C = vmap(
                grad_and_value(self._loss), dims, randomness="same"
            )(weights_CD, batch)
        return losses_C.detach(), gradients_CD.detach()

    def _one_by_one(
        self, weights_CD: Tensor, batches: Sequence[Batch], *, with_gradients: bool
    ) -> tuple[Tensor, Tensor | None]:
        losses, gradients = [], []
        for weights_D, batch in zip(weights_CD, batches, strict=True):
            if not with_gradients:
                losses.append(self._loss(weights_D, batch))
                continue
            with torch.enable_grad(), differentiable():
                free_D = weights_D.detach().clone().requires_grad_()
                loss = self._loss(free_D, batch)
                gradients.extend(torch.autograd.grad(loss, free_D))
            losses.append(loss.detach())
        return torch.stack(losses), torch.stack(gradients) if gradients else None

    def _loss(self, weights_D: Tensor, batch: Batch) -> Tensor:
        return self._of.mean_loss(self._of.outputs(weights_D, batch), batch)

    def _rows(self, rows: slice) -> Batch:
        return self._mapped(lambda leaf: leaf[rows])

    def _taken(self, rows_CB: Tensor) -> Batch:
        """Return batches of each chain, stacked, (C, B, ...)."""
        return self._mapped(lambda leaf: leaf[rows_CB])

    def _of_chain(self, batch: Batch, chain: int) -> Batch:
        leaves, structure = tree_flatten(batch)
        holds = self._leaves_of_samples()
        picked = [
            leaf[chain] if h else leaf for leaf, h in zip(leaves, holds, strict=True)
        ]
        return tree_unflatten(picked, structure)

    def _mapped(self, pick: Any) -> Batch:
        return tree_map(
            lambda leaf: pick(leaf) if _holds_samples(leaf, self.num_samples) else leaf,
            self._batch,
        )

    def _leaves_of_samples(self) -> list[bool]:
        leaves, _ = tree_flatten(self._batch)
        return [_holds_samples(leaf, self.num_samples) for leaf in leaves]

    def _dims(self) -> Any:
        """Return the dimension of the chains of each leaf of stacked batches."""
        _, structure = tree_flatten(self._batch)
        dims = [0 if holds else None for holds in self._leaves_of_samples()]
        return tree_unflatten(dims, structure)
