"""Training curves: losses, accuracies, norms and step lengths of a batch of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.trained import RECORDED
from curvflow.schemas.nodes import Array
from curvflow.tasks.networks.losses import sum_of_terms
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.training.batch_draws import BatchDraws
from curvflow.tasks.training.batches import Subset
from curvflow.tasks.training.cache_blocks import apply_in_blocks, rows_at_once
from curvflow.tasks.training.gradients import Uniform


@torch.no_grad()
def norms(problem: Problem, weights_MW: Tensor) -> dict[str, Tensor]:
    """Measure the parameters of models.

    Args:
        problem: their network.
        weights_MW: parameters and statistics, (M, D + S).

    Returns:
        Per name (M,): `norm_l2` and `norm_l1` of all parameters, `norm_max_unit`, the
        largest norm of the weights into one unit, `sum_of_norms`, the sum of the
        tensors' Frobenius norms, and `path_norm` for p = 2, NaN where undefined.

    Reference:
        Neyshabur, Tomioka and Srebro (2015), arXiv:1503.00036, for group norms.
    """
    network = problem.network
    weights_MD, _ = network.split(weights_MW)
    tensors = network.layout.unflatten(weights_MD)
    units = [t.flatten(2).norm(dim=2).amax(1) for t in tensors if t.ndim > 2]
    nothing_M = torch.full_like(weights_MD[:, 0], torch.nan)
    sums_M = nothing_M
    if network.has_paths:
        sums_M = network.path_sums(
            weights_MD.double().square(), problem.input_shape, 2.0
        )
    return {
        "norm_l2": weights_MD.norm(dim=1),
        "norm_l1": weights_MD.abs().sum(1),
        "norm_max_unit": torch.stack(units).amax(0) if units else nothing_M,
        "sum_of_norms": network.layout.norms(weights_MD).sum(1),
        "path_norm": sums_M.sqrt(),
    }


EVALUATION_ROWS = 4096


def evaluated_rows(problem: Problem, item: int) -> int:
    """Return how many samples are evaluated in one pass, at most.

    Args:
        problem: network and loss.
        item: bytes of a number.
    """
    return min(EVALUATION_ROWS, rows_at_once(problem, item) or EVALUATION_ROWS)


class Evaluation:
    """Loss and accuracy of a batch of models over one set of samples."""

    def __init__(
        self,
        problem: Problem,
        samples: Samples | Subset,
        num_classes: int,
        accuracy: Literal["auto", "nearest"] = "auto",
        draws: BatchDraws | None = None,
    ) -> None:
        """Take the evaluated sets.

        Args:
            problem: network and loss.
            samples: the set.
            num_classes: of the data; 0 of values.
            accuracy: of values with two classes, see `train`.
            draws: random numbers of networks in training; None in evaluation.
        """
        self._problem, self._samples = problem, samples
        self._criterion, self._draws = problem.criterion, draws
        values = 0 if problem.has_labels else samples.num_targets
        self._has_signs = values == 1 and num_classes == 2
        self._is_one_hot = values == num_classes > 1
        self._accuracy, self._num_classes = accuracy, num_classes

    @property
    def is_empty(self) -> bool:
        """True if there are no samples."""
        return self._samples.count == 0

    def uncounted(self) -> list[int]:
        """Return the models of whose samples no label counts, so that nothing can."""
        if not self._criterion.weighs_terms or self.is_empty:
            return []
        counted_M = torch.zeros(1, dtype=torch.bool, device=self._samples.device)
        for start in range(0, self._samples.count, EVALUATION_ROWS):
            rows = self._samples.rows(slice(start, start + EVALUATION_ROWS))
            counts_MN, _ = self._criterion.weights_of(rows.targets)
            counted_M = counted_M | (counts_MN > 0).any(1)
            if counted_M.all():
                break
        return [int(model) for model in (~counted_M).nonzero().flatten()]

    @torch.no_grad()
    def __call__(self, weights_MW: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and accuracy, each (M,); NaN where undefined."""
        if self.is_empty:
            nothing = weights_MW.new_full((len(weights_MW),), torch.nan)
            return nothing, nothing
        rows = evaluated_rows(self._problem, weights_MW.element_size())
        if self._draws is not None:
            rows = self._draws.batch_size
        parts = [
            self._evaluate_rows(weights_MW, slice(start, start + rows))
            for start in range(0, self._samples.count, rows)
        ]
        losses_MN, right_MN, counts_MN, weights_MN = (
            torch.cat(part, dim=1) for part in zip(*parts, strict=True)
        )
        # Both are 1 for each sample, unless some terms do not count.
        loss_M = self._problem.reduced(losses_MN) / weights_MN.mean(1)  # NaN of none
        return loss_M, right_MN.mean(1) / counts_MN.mean(1)

    def _evaluate_rows(self, weights_MW: Tensor, rows: slice) -> tuple[Tensor, ...]:
        chunk = self._samples.rows(rows)

        def one_pass(models: slice) -> tuple[Tensor, ...]:
            some_MW, draws = weights_MW[models], self._draws
            draw = draws.of(models, rows, some_MW) if draws else None
            return self._one_pass(some_MW, chunk.models(models), draw)

        whole = slice(0, len(weights_MW))
        return apply_in_blocks(one_pass, self._problem, whole, chunk, weights_MW)

    def _one_pass(
        self, weights_MW: Tensor, chunk: Samples, draw: Uniform | None
    ) -> tuple[Tensor, ...]:
        outputs_MNC = self._problem.network.outputs(weights_MW, chunk.inputs, draw)
        losses_MN = self._criterion.of_samples(outputs_MNC, chunk.targets)
        weights = self._criterion.weights_of(chunk.targets)
        right_MN = self._right(self._criterion.predicted(outputs_MNC), chunk.targets)
        if right_MN is None:
            right_MN = torch.full_like(losses_MN, torch.nan)
        return (
            losses_MN,
            right_MN.to(losses_MN.dtype),
            *(part.to(losses_MN).expand_as(losses_MN) for part in weights),
        )

    def _right(self, outputs_MNC: Tensor, targets: Tensor) -> Tensor | None:
        if self._criterion.weighs_terms:
            right = outputs_MNC.argmax(-1) == targets[..., 0]
            return sum_of_terms(right * targets[..., 1])
        if self._criterion.by_sign:
            right = ((outputs_MNC > 0) == (targets > 0.5)).to(outputs_MNC.dtype)
            return right.flatten(2).mean(2)
        if self._problem.has_labels:
            return self._right_labels(outputs_MNC, targets)
        if outputs_MNC.shape[2:] != targets.shape[2:]:
            return None  # a loss of other outputs than one of each value
        if self._is_one_hot:
            return outputs_MNC.argmax(-1) == targets.argmax(-1)
        if not self._has_signs:
            return None
        if self._accuracy == "nearest":
            return (outputs_MNC - targets).abs().squeeze(-1) < 0.5
        return (outputs_MNC * targets).squeeze(-1) > 0

    def _right_labels(self, outputs_MNC: Tensor, labels: Tensor) -> Tensor | None:
        if outputs_MNC.shape[-1] != self._num_classes:
            return None  # outputs of a loss of one's own, which are no classes
        right = (outputs_MNC.argmax(-1) == labels).to(outputs_MNC.dtype)
        return right if right.ndim == 2 else right.flatten(2).mean(2)


class Curves:
    """The recorded curves, NaN from the epoch of divergence on."""

    def __init__(
        self,
        epochs: Sequence[int],
        problem: Problem,
        sets: Mapping[str, Evaluation],
        models: int,
    ) -> None:
        """Allocate the curves.

        Args:
            epochs: recorded epochs.
            problem: network and loss.
            sets: an evaluation for `train`, `validation` and `test`.
            models: M.
        """
        self.epochs = tuple(epochs)
        self._row = {epoch: row for row, epoch in enumerate(self.epochs)}
        self._problem, self._sets = problem, sets
        shape = (len(self.epochs), len(RECORDED), models)
        self._values_EVM = torch.full(shape, torch.nan, dtype=torch.float64)
        self._rows = 0  # up to the last that is not NaN throughout

    def wants(self, epoch: int) -> bool:
        """Return whether this epoch is recorded."""
        return epoch in self._row

    def measure(
        self,
        weights_MW: Tensor,
        *,
        update_MD: Tensor,
        rates: tuple[Tensor, Tensor],
        logged: Mapping[str, Tensor],
        step_norm_M: Tensor | None = None,
    ) -> Tensor:
        """Evaluate the models.

        Args:
            weights_MW: parameters and statistics of the present result.
            update_MD: change of the weights over the last epoch.
            rates: learning rates and momenta of that epoch, (M,) each.
            logged: numbers of `RULES_RECORD`, (M,) each, NaN of rules without them.
            step_norm_M: mean length of the epoch's steps, if it is recorded.

        Returns:
            The values of `RECORDED`, (len(RECORDED), M), float64.
        """
        values = norms(self._problem, weights_MW)
        for name, evaluation in self._sets.items():
            values[f"{name}_loss"], values[f"{name}_accuracy"] = evaluation(weights_MW)
        values |= {"update_norm": update_MD.norm(dim=1)}
        if step_norm_M is None:
            step_norm_M = torch.full_like(values["update_norm"], torch.nan)
        values["step_norm"] = step_norm_M
        values |= dict(zip(("lr", "chosen_momentum"), rates, strict=True))
        values.update(logged)
        device = weights_MW.device
        return torch.stack(
            [values[name].to(device, torch.float64) for name in RECORDED]
        )

    def training_loss(self, weights_MW: Tensor) -> Tensor:
        """Return the training loss, (M,)."""
        return self._sets["train"](weights_MW)[0]

    def validate(self, weights_MW: Tensor) -> Tensor:
        """Return the validation loss, (M,)."""
        return self._sets["validation"](weights_MW)[0]

    def record(self, epoch: int, measured: Tensor, alive_M: Tensor) -> None:
        """Record measured values of the models that have not diverged."""
        row = self._row[epoch]
        self._values_EVM[row] = measured.masked_fill(~alive_M, torch.nan).cpu()
        self._rows = max(self._rows, row + 1)

    def of(self, model: int) -> dict[str, Array]:
        """Return one model's curves by name."""
        values = self._values_EVM[:, :, model].T.numpy()
        return {name: row.copy() for name, row in zip(RECORDED, values, strict=True)}

    def fill_from(self, model: int, first: int, measured: Tensor) -> None:
        """Set one model's values, (V,), at all recorded epochs from the first on."""
        later = [row for row, epoch in enumerate(self.epochs) if epoch >= first]
        self._values_EVM[later, :, model] = measured.double()
        self._rows = len(self.epochs)

    def take(self, model: int, arrays: Mapping[str, Array]) -> None:
        """Copy one model's values at the epochs that are recorded here.

        Args:
            model: number of the model.
            arrays: the curves by name, and their `epoch`.
        """
        nothing = np.full(len(arrays["epoch"]), np.nan)
        stacked = np.stack([arrays.get(name, nothing) for name in RECORDED])
        values = torch.as_tensor(stacked)
        for column, epoch in enumerate(arrays["epoch"].tolist()):
            if epoch in self._row:
                row = self._row[epoch]
                self._values_EVM[row, :, model] = values[:, column]
                self._rows = max(self._rows, row + 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the values recorded so far, with rows for those epochs alone."""
        return {"values": self._values_EVM[: self._rows]}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore recorded values."""
        self._rows = len(tensors["values"])
        self._values_EVM[: self._rows] = tensors["values"]
