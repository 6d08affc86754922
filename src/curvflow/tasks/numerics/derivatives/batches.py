"""Batches of data, and the losses of their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import nll_loss
from torch.utils._pytree import tree_leaves, tree_map

from curvflow.errors import InputError

Batch = Any

# What a trial is made on: samples at most, and the part of a batch that they are.
TRIAL_SAMPLES, TRIAL_PART = 64, 4

# A mixture has outputs of so many samples, and of targets so many at once that their
# outputs are so many numbers, so many whatever their labels, and so many times.
FEW_OUTPUTS, MOST_TARGETS, MOST_NUMBERS = 16, 256, 1 << 24
ANY_TARGETS, MOST_TIMES = 128, 16

# Numbers, and real ones, that have more values than this are no labels.
MOST_LABELS, MOST_VALUES = 4096, 256


def targets_of(batch: Batch) -> Any:
    """Return what the loss compares outputs with; of a dictionary without, all."""
    if isinstance(batch, Mapping):
        return batch.get("targets", batch)
    return batch[1]


def num_samples(batch: Batch) -> int:
    """Return the length of a batch's first tensor."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    if not tensors:
        raise InputError(
            f"data: expected tensors in a batch, got {type(batch).__name__}. Pass "
            "(inputs, targets), a dictionary, a list of such, or a loader."
        )
    return len(tensors[0])


def plain(batch: Batch) -> Batch:
    """Return a batch whose mappings are dictionaries, as tokenizers have others."""
    if isinstance(batch, Mapping):
        return {name: plain(part) for name, part in batch.items()}
    if type(batch) in (tuple, list):
        return type(batch)(plain(part) for part in batch)
    return batch


def few_of(batch: Batch) -> Batch:
    """Return a few samples of a batch of inputs and targets to try something on.

    Others, whose samples cannot be separated, are returned whole.
    """
    if isinstance(batch, Mapping) and set(batch) != {"inputs", "targets"}:
        return batch
    leaves = tree_leaves(batch)
    if not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in leaves):
        return batch
    if len({len(leaf) for leaf in leaves}) > 1:
        return batch
    return tree_map(lambda t: t[: _few(len(t))], batch)


def split(batch: Batch, most: int) -> list[Batch]:
    """Return batches of consecutive samples of one, at most so many each.

    Tensors as long as the first are taken for those of its samples. Whether they are,
    and whether a module takes the samples apart, is to be seen from what it computes.
    """
    samples = num_samples(batch)

    def rows(leaf: Any, first: int) -> Any:
        is_of_samples = isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == samples
        return leaf[first : first + most] if is_of_samples else leaf

    return [
        tree_map(partial(rows, first=first), batch) for first in range(0, samples, most)
    ]


def _few(samples: int) -> int:
    # Two at least: a batch norm has no variance of one.
    return max(2, min(TRIAL_SAMPLES, samples // TRIAL_PART))


class Mixture:
    """Targets of batches of one form, one of each label, and outputs of the first.

    Each label is compared with the first target of all: where classes have weights, or
    do not count, some label has another weight than that one.
    """

    def __init__(self) -> None:
        """Begin without targets."""
        self._outputs: list[Tensor] = []
        self._targets: list[Any] = []
        self._labels: dict[int, set[Any]] = {}
        self._has_more_labels = True
        self._times = 0

    @property
    def is_full(self) -> bool:
        """True if no target of another batch would be taken."""
        takes_labels = self._has_more_labels and self._times < MOST_TIMES
        return not (takes_labels or self._takes_any)

    @property
    def _takes_any(self) -> bool:
        return not self._times and len(self._targets) < ANY_TARGETS

    def add(
        self, outputs: Callable[[], Tensor], batch: Batch
    ) -> Iterator[tuple[Tensor, Any]]:
        """Take targets of labels not met before, and the first and last of a batch.

        Args:
            outputs: of the batch, computed where they are needed.
            batch: whose tensors are all of its samples.

        Yields:
            Outputs and targets, as of one batch, whenever they are enough.
        """
        if sum(map(len, self._outputs)) < FEW_OUTPUTS:
            computed = outputs()
            self._outputs.append(computed[: min(FEW_OUTPUTS, _most(computed))].clone())
        most = min(MOST_TARGETS, _most(self._outputs[0]))
        targets, samples = targets_of(batch), num_samples(batch)
        rows = self._rows_of_new_labels(targets, samples)
        if self._takes_any:
            rows |= {0, samples - 1}
        for row in sorted(rows):
            if self._times < MOST_TIMES:
                self._targets.append(
                    tree_map(lambda leaf, n=row: _row(leaf, n), targets)
                )
                if len(self._targets) == most:
                    yield self.pairs()

    def pairs(self) -> tuple[Tensor, Any]:
        """Return outputs and targets as of one batch; the first target is kept."""
        outputs, count = torch.cat(self._outputs), len(self._targets)
        targets = tree_map(lambda *leaves: _joined(leaves), *self._targets)
        self._targets = self._targets[:1]
        self._times += 1
        return outputs[torch.arange(count) % len(outputs)], targets

    def _rows_of_new_labels(self, targets: Any, samples: int) -> set[int]:
        rows: set[int] = set()
        self._has_more_labels = False
        for place, leaf in enumerate(tree_leaves(targets)):
            if not isinstance(leaf, Tensor):
                continue
            labels = self._labels.setdefault(place, set())
            most = MOST_VALUES if leaf.is_floating_point() else MOST_LABELS
            if len(labels) < most:
                values, first = np.unique(_numbers(leaf), return_index=True)
                order = first.argsort()[:most]
                pairs = zip(values[order].tolist(), first[order].tolist(), strict=True)
                new = [pair for pair in pairs if pair[0] not in labels]
                terms = max(1, leaf.numel() // samples)
                for value, number in new[: most - len(labels)]:
                    labels.add(value)
                    rows.add(number // terms)
            self._has_more_labels |= len(labels) < most
        return rows


def _most(outputs: Tensor) -> int:
    """Return how many samples' outputs are looked at."""
    return max(2, MOST_NUMBERS // max(1, outputs[0].numel()))


def _numbers(leaf: Tensor) -> Any:
    is_half = leaf.is_floating_point() and leaf.dtype.itemsize < 4
    return (leaf.float() if is_half else leaf).detach().flatten().cpu().numpy()


def _row(leaf: Any, row: int) -> Any:
    return leaf[row : row + 1].clone() if isinstance(leaf, Tensor) else leaf


def _joined(leaves: tuple[Any, ...]) -> Any:
    return torch.cat(leaves) if isinstance(leaves[0], Tensor) else leaves[0]


SampleLoss = Callable[[Tensor, Tensor], Tensor]


def label_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each label by itself.

    Args:
        outputs: logits, (M, N, C), or (M, N, T, C) of the tokens of a sample.
        targets: labels, (M or 1, N) or (M or 1, N, T).

    Returns:
        Losses, (M, N) or (M, N, T).
    """
    logs = torch.log_softmax(outputs, dim=-1)
    labels = targets.expand(outputs.shape[:-1])
    losses: Tensor = -logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return losses


def fused_label_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Compute what `label_losses` does of one model, with first derivatives alone.

    The bits are the same, of the gradient too; one kernel stands for four.

    Args:
        outputs: logits, (1, N, C) or (1, N, T, C).
        targets: labels, (1, N) or (1, N, T).

    Returns:
        Losses, (1, N) or (1, N, T).
    """
    logs = torch.log_softmax(outputs, dim=-1).flatten(0, -2)
    losses: Tensor = nll_loss(logs, targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def _cross_entropy(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    losses = label_losses(outputs_MNC, targets)
    return losses if losses.ndim == 2 else losses.flatten(2).mean(2)


def _squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().sum(-1)


def _mean_squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().mean(-1)


LOSSES = {"cross_entropy": _cross_entropy, "mse": _mean_squared, "sse": _squared}
