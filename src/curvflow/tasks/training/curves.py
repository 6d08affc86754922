"""Losses, accuracies and norms of a batch of models along training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.train import CURVES
from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.problems import Problem, Samples
from curvflow.tasks.training.passes import in_passes

EVALUATION_ROWS = 4096


def reduced(problem: Problem, losses_MN: Tensor) -> Tensor:
    """Return the loss that is minimised, (M,): the sum for sse, else the mean."""
    return losses_MN.sum(1) if problem.loss == "sse" else losses_MN.mean(1)


class Evaluation:
    """Loss and accuracy of a batch of models over one set of samples."""

    def __init__(self, problem: Problem, samples: Samples, num_classes: int) -> None:
        """Take the problem, the samples and their declared number of classes."""
        self._problem, self._samples = problem, samples
        self._has_labels = samples.targets.ndim == 2
        self._has_signs = not self._has_labels and num_classes == 2

    @torch.no_grad()
    def __call__(self, weights_MD: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and accuracy, each (M,); NaN where undefined."""
        count = self._samples.count
        if count == 0:
            nothing = weights_MD.new_full((len(weights_MD),), torch.nan)
            return nothing, nothing
        parts = [
            self._evaluate_rows(weights_MD, slice(start, start + EVALUATION_ROWS))
            for start in range(0, count, EVALUATION_ROWS)
        ]
        losses_MN, right_MN = (
            torch.cat(part, dim=1) for part in zip(*parts, strict=True)
        )
        return reduced(self._problem, losses_MN), right_MN.mean(1)

    def _evaluate_rows(self, weights_MD: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        some = self._samples.rows(rows)
        return in_passes(self._one_pass, self._problem, weights_MD, some)

    def _one_pass(self, weights_MD: Tensor, some: Samples) -> tuple[Tensor, Tensor]:
        outputs_MNC = self._problem.network.outputs(weights_MD, some.inputs)
        losses_MN = sample_losses(self._problem.loss)(outputs_MNC, some.targets)
        if self._has_labels:
            right_MN = outputs_MNC.argmax(-1) == some.targets
        elif self._has_signs:
            right_MN = (outputs_MNC * some.targets).squeeze(-1) > 0
        else:
            return losses_MN, torch.full_like(losses_MN, torch.nan)
        return losses_MN, right_MN.to(losses_MN.dtype)


class Curves:
    """The recorded curves, NaN from the epoch of divergence on."""

    def __init__(
        self,
        epochs: Sequence[int],
        train: Evaluation,
        test: Evaluation,
        models: int,
    ) -> None:
        """Take what to record, how to evaluate, and the number of models."""
        self.epochs = tuple(epochs)
        self._row = {epoch: row for row, epoch in enumerate(self.epochs)}
        self._train, self._test = train, test
        self._values = torch.full(
            (len(CURVES), len(self.epochs), models), torch.nan, dtype=torch.float64
        )

    def wants(self, epoch: int) -> bool:
        """Return whether this epoch is recorded."""
        return epoch in self._row

    def measure(self, weights_MD: Tensor, before_MD: Tensor) -> Tensor:
        """Evaluate the models.

        Args:
            weights_MD: present weights.
            before_MD: weights one epoch earlier.

        Returns:
            The values of `CURVES`, (6, M).
        """
        train_loss, train_accuracy = self._train(weights_MD)
        test_loss, test_accuracy = self._test(weights_MD)
        norm, update = weights_MD.norm(dim=1), (weights_MD - before_MD).norm(dim=1)
        return torch.stack(
            [train_loss, test_loss, train_accuracy, test_accuracy, norm, update]
        )

    def record(self, epoch: int, measured: Tensor, alive_M: Tensor) -> None:
        """Keep what was measured of the models that have not diverged."""
        shown = measured.double().masked_fill(~alive_M, torch.nan)
        self._values[:, self._row[epoch]] = shown.cpu()

    def of(self, model: int) -> dict[str, Array]:
        """Return one model's curves by name."""
        values = self._values[:, :, model].numpy()
        return {name: row.copy() for name, row in zip(CURVES, values, strict=True)}

    def take(self, model: int, arrays: Mapping[str, Array]) -> None:
        """Take one model's values at those epochs that are recorded here.

        Args:
            model: its number.
            arrays: the curves by name, and their `epoch`.
        """
        values = torch.as_tensor(np.stack([arrays[name] for name in CURVES]))
        for column, epoch in enumerate(arrays["epoch"].tolist()):
            if epoch in self._row:
                self._values[:, self._row[epoch], model] = values[:, column]

    def tensors(self) -> dict[str, Tensor]:
        """Return what has been recorded so far."""
        return {"values": self._values}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what had been recorded."""
        self._values = tensors["values"]
