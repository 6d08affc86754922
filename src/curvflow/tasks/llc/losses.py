"""Losses that chains of a study are sampled on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from curvflow.schemas.models import parse_model
from curvflow.schemas.models.autoencoder import Autoencoder
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.models.logistic import Logistic
from curvflow.schemas.models.mlp import Mlp
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.numerics.derivatives.dense_gradients import DenseForm
from curvflow.tasks.numerics.derivatives.passes import spans
from curvflow.tasks.numerics.sampling.dense_losses import CHAIN_BYTES, DenseLosses
from curvflow.tasks.training.batch_draws import BatchDraws
from curvflow.tasks.training.gradients import Uniform


def dense_form(problem: Problem) -> DenseForm | None:
    """Return the form of a problem's network, or None if it is no dense network.

    Dropout makes no difference, as networks are not in training here.

    Args:
        problem: its text names the model.
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


@dataclass(frozen=True)
class SampledLosses:
    """Mean losses of chains about a problem; statistics of networks are fixed.

    Attributes:
        problem: network and loss.
        samples: shared by all chains, or of each target.
        statistics: such as a batch norm's running means, of each chain, (C, S).
        owner: number of the target that a chain belongs to, (C,).
        draws: random numbers of each chain's network in training, whose samples meet in
            the batches of these: losses are over all the data then; None in evaluation.
    """

    problem: Problem
    samples: Samples
    statistics: Tensor
    owner: Tensor
    draws: BatchDraws | None = None

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        return self.samples.count

    @cached_property
    def _dense(self) -> DenseLosses | None:
        """The same without autograd, where the network is dense layers alone."""
        form = None if self.draws else dense_form(self.problem)
        if form is None or not self.problem.criterion.likelihood:
            return None
        samples = self.samples
        return DenseLosses(
            form, self.problem.loss, samples.inputs, samples.targets, self.owner
        )

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: positions of the chains.
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
            weights_CD: positions of the chains.
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
        """Return mean losses, with gradients if the weights require them."""
        count = self.num_samples if rows_CB is None else rows_CB.shape[1]
        each = self.problem.network.width * weights_CD.element_size()
        # It does not depend on how many chains there are, nor does the order of sums.
        step = self.draws.batch_size if self.draws else max(1, CHAIN_BYTES // each)
        limit = PASS_BYTES.get(weights_CD.device.type, PASS_BYTES["cpu"])
        most = limit // (each * min(step, count))
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
        """Return the same of some chains, a part of the samples at a time."""
        count = self.num_samples if rows_CB is None else rows_CB.shape[1]
        parts = []
        for first in range(0, count, step):
            rows = slice(first, first + step)
            draw = None
            if rows_CB is None:
                samples = self.samples.rows(rows).models(self.owner[chains])
                if self.draws is not None:
                    draw = self.draws.of(chains, rows, weights_CD)
            else:
                assert self.draws is None
                samples = self._taken(rows_CB[chains, rows], chains)
            parts.append(self._one_pass(weights_CD, chains, samples, count, draw))
        if len(parts) == 1:
            return parts[0]
        return tuple(
            torch.stack(several).sum(0) for several in zip(*parts, strict=True)
        )

    def _one_pass(
        self,
        weights_CD: Tensor,
        chains: slice,
        samples: Samples,
        count: int,
        draw: Uniform | None,
    ) -> tuple[Tensor, ...]:
        part_cD = weights_CD[chains].detach().requires_grad_(weights_CD.requires_grad)
        losses_CN = self._losses(part_cD, self.statistics[chains], samples, draw)
        losses_C = losses_CN.sum(1) / count
        if not losses_C.requires_grad:
            return (losses_C,)
        (gradients_CD,) = torch.autograd.grad(losses_C.sum(), part_cD)
        return losses_C.detach(), gradients_CD

    def _losses(
        self,
        weights_CD: Tensor,
        statistics_CS: Tensor,
        samples: Samples,
        draw: Uniform | None,
    ) -> Tensor:
        if statistics_CS.shape[1]:
            weights_CD = torch.cat([weights_CD, statistics_CS], dim=1)
        outputs_CNO = self.problem.network.outputs(weights_CD, samples.inputs, draw)
        return self.problem.criterion.of_samples(outputs_CNO, samples.targets)

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
