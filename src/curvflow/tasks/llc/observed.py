"""Losses of samples, tokens and labels, observed at the draws of chains.

Letters in addition to those of the package: C chains; n samples of a split; O what is
observed, of all splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.losses import loss_name
from curvflow.schemas.nodes import Array
from curvflow.tasks.llc.losses import PASS_BYTES
from curvflow.tasks.networks.losses import parse_loss, sum_of_terms
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.numerics.derivatives.batches import label_losses
from curvflow.tasks.numerics.derivatives.passes import spans
from curvflow.tasks.numerics.sampling.dense_losses import CHAIN_BYTES

Kept = Literal["samples", "tokens", "labels"]


@dataclass(frozen=True)
class ObservedSamples:
    """Samples whose losses are observed, of a tile's models.

    Attributes:
        problem: network and loss.
        splits: samples of `train` and `test`, shared by all models or of each.
        kept: whether losses are of samples, of tokens or means over labels.
        num_samples: training samples of the loss, N.
        terms: labels that count for each sample of a split, on average, (M or 1,);
            where targets are loaded as pairs of a label and its weight.
    """

    problem: Problem
    splits: Mapping[str, Samples]
    kept: Kept
    num_samples: int
    terms: Mapping[str, Tensor]

    def of_chains(self, statistics_MS: Tensor, owner_C: Tensor) -> ObservedLosses:
        """Return the losses of chains.

        Args:
            statistics_MS: of the models' networks.
            owner_C: the model that each chain belongs to.
        """
        return ObservedLosses(self, statistics_MS[owner_C], owner_C)

    @property
    def num_classes(self) -> int:
        """Labels that there are."""
        return self.problem.num_outputs

    def description(self, model: int) -> dict[str, Array]:
        """Return what each loss of a model is of, as variables of `probe.llc`.

        Args:
            model: its number.
        """
        parts = [
            self._described(split, samples.models(slice(model, model + 1)))
            for split, samples in self.splits.items()
        ]
        return {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }

    def _described(self, split: str, samples: Samples) -> dict[str, Array]:
        count, has_labels = samples.count, _is_of_labels(self.problem)
        labels, is_counted = (part[0].cpu().numpy() for part in self.labels(samples))
        none = np.full(count, -1)
        row, token, label = np.arange(count), none, none
        if labels.ndim == 1 and has_labels:
            label = np.where(is_counted, labels, -1)
        total = np.ones(count, dtype=np.int64)
        if self.kept == "samples" and self.problem.criterion.weighs_terms:
            total = is_counted.reshape(count, -1).sum(1)
        if self.kept == "tokens":
            row, token = (each.ravel() for each in np.indices(labels.shape))
            label = np.where(is_counted, labels, -1).ravel()
            total = is_counted.ravel()
        elif self.kept == "labels":
            total = np.bincount(labels[is_counted], minlength=self.num_classes)
            label = np.arange(self.num_classes)
            row = token = np.full(self.num_classes, -1)
        arrays = {"row": row, "token": token, "label": label, "count": total}
        return {
            "observed_is_test": np.full(len(row), split == "test"),
            **{
                f"observed_{name}": each.astype("int64")
                for name, each in arrays.items()
            },
        }

    def labels(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Return the labels of samples, and which of them count.

        Args:
            samples: as loaded, of a split.
        """
        targets = samples.targets
        if not self.problem.criterion.weighs_terms:
            return targets, torch.ones_like(targets, dtype=torch.bool)
        return targets[..., 0].long(), targets[..., 1] > 0


@dataclass(frozen=True)
class ObservedLosses:
    """Losses of chains on observed samples.

    Attributes:
        observed: the samples.
        statistics: of each chain's network, (C, S).
        owner: number of the model that a chain belongs to, (C,).
    """

    observed: ObservedSamples
    statistics: Tensor
    owner: Tensor

    @property
    def passes(self) -> float:
        """Work of one evaluation, in gradients of the mean loss over all the data."""
        count = sum(samples.count for samples in self.observed.splits.values())
        return count / self.observed.num_samples / 3

    def values(self, weights_CD: Tensor) -> Tensor:
        """Return the losses, (C, O); NaN of what has no label that counts.

        Args:
            weights_CD: positions of the chains.
        """
        with torch.no_grad():
            parts = [
                self._of_split(weights_CD.detach(), samples, split)
                for split, samples in self.observed.splits.items()
            ]
        return torch.cat(parts, dim=1)

    def _of_split(self, weights_CD: Tensor, samples: Samples, split: str) -> Tensor:
        each = self.observed.problem.network.width * weights_CD.element_size()
        # Neither depends on how many chains there are.
        step = max(1, CHAIN_BYTES // each)
        limit = PASS_BYTES.get(weights_CD.device.type, PASS_BYTES["cpu"])
        most = limit // (each * min(step, samples.count))
        of_chains = partial(self._of_chains, weights_CD, samples, split, step)
        losses = torch.cat([*map(of_chains, spans(len(weights_CD), most))])
        if self.observed.kept != "labels":
            return losses.flatten(1)
        return self._by_label(losses, samples)

    def _of_chains(
        self,
        weights_CD: Tensor,
        samples: Samples,
        split: str,
        step: int,
        chains: slice,
    ) -> Tensor:
        """Return the losses of some chains, (c, n) or (c, n, T)."""
        problem, statistics_cS = self.observed.problem, self.statistics[chains]
        weights_cW = weights_CD[chains]
        if statistics_cS.shape[1]:
            weights_cW = torch.cat([weights_cW, statistics_cS], dim=1)
        loss = problem.criterion.of_samples
        if split in self.observed.terms:
            terms_M = self.observed.terms[split]
            each_c = terms_M if len(terms_M) == 1 else terms_M[self.owner[chains]]
            by_sample = self.observed.kept == "samples"
            loss = partial(self._of_rows if by_sample else self._of_terms, each_c)
        elif self.observed.kept == "tokens":
            loss = label_losses
        parts = []
        for first in range(0, samples.count, step):
            part = samples.rows(slice(first, first + step)).models(self.owner[chains])
            outputs = problem.network.outputs(weights_cW, part.inputs)
            parts.append(loss(outputs, part.targets))
        return torch.cat(parts, dim=1)

    def _of_rows(self, terms_C: Tensor, outputs: Tensor, pairs: Tensor) -> Tensor:
        """Return the mean over the labels of each sample, (C, n); NaN without one.

        The mean over those that count, of a split, is the loss of it.
        """
        losses = self.observed.problem.criterion.of_samples(outputs, pairs)
        counts = sum_of_terms((pairs[..., 1] > 0).to(losses))
        means = losses * terms_C[:, None].to(losses) / counts
        return means.where((counts > 0).expand(means.shape), torch.nan)

    def _of_terms(self, terms_C: Tensor, outputs: Tensor, pairs: Tensor) -> Tensor:
        """Return the loss of each label, (C, n) or (C, n, T); NaN where none counts.

        The mean over those that count, of a split, is the loss of it.
        """
        shape = outputs.shape[:-1]
        each = self.observed.problem.criterion.of_samples(
            outputs.flatten(1, -2), pairs.flatten(1, -2)
        )
        losses = (each * terms_C[:, None].to(each)).reshape(shape)
        return losses.where((pairs[..., 1] > 0).expand(shape), torch.nan)

    def _by_label(self, losses_Cn: Tensor, samples: Samples) -> Tensor:
        labels_Cn, is_counted_Cn = (
            part.expand(losses_Cn.shape)
            for part in self.observed.labels(samples.models(self.owner))
        )
        # Sums along rows, as scattered ones come in any order on a GPU.
        means = []
        for label in range(self.observed.num_classes):
            is_of_Cn = (labels_Cn == label) & is_counted_Cn
            means.append(losses_Cn.where(is_of_Cn, 0.0).sum(1) / is_of_Cn.sum(1))
        return torch.stack(means, dim=1)


def observed_samples(
    problem: Problem,
    splits: Mapping[str, Samples],
    *,
    kept: Kept,
    most: int | None,
    num_samples: int,
) -> ObservedSamples:
    """Return the samples to be observed.

    Args:
        problem: network and loss.
        splits: samples by `train` and `test`, as loaded.
        kept: what losses are kept of.
        most: of each split the first so many are observed; None takes all.
        num_samples: training samples of the loss, N.

    Returns:
        The samples.

    Raises:
        InputError: the targets are no labels, or of one label a sample and not of
            tokens, or of tokens; or there are no test samples.
    """
    wants_tokens = kept == "tokens"
    lacks = ""
    if not _is_of_labels(problem):
        lacks = "of another loss than the cross entropy"
    elif wants_tokens != (problem.tokens is not None):
        needed = "labels of tokens" if wants_tokens else "one label for each sample"
        lacks = f"of data without {needed}"
    if kept != "samples" and lacks:
        raise InputError(
            f"keep_losses: expected samples {lacks}, got {kept}. Take samples."
        )
    for split, samples in splits.items():
        if not samples.count:
            raise InputError(
                f"observed: expected data with {split} samples, got none. Set it to "
                "train."
            )
    return ObservedSamples(
        problem,
        {split: samples.rows(slice(most)) for split, samples in splits.items()},
        kept,
        num_samples,
        {split: _terms(samples) for split, samples in splits.items()}
        if problem.criterion.weighs_terms
        else {},
    )


def _is_of_labels(problem: Problem) -> bool:
    return loss_name(parse_loss(problem.loss)) == "cross_entropy"


def _terms(samples: Samples) -> Tensor:
    """Return how many labels count of each sample on average, (M or 1,)."""
    return (samples.targets[..., 1] > 0).flatten(1).double().sum(1) / samples.count
