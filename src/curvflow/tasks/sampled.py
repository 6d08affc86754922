"""From the members of a probe's tile to the losses that chains are sampled on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from curvflow.tasks.dense_forms import dense_form
from curvflow.tasks.dense_losses import DenseLosses
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.numerics.spans import spans
from curvflow.tasks.problems import Problem, Samples

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
