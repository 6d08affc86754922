"""The training loop of a batch of models: steps, recording, checkpoints, stopping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.trained import RECORDED
from curvflow.schemas.rules import Position
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.training.augmentation import Augmenter
from curvflow.tasks.training.batches import Batches, LabelNoise
from curvflow.tasks.training.curves import Curves
from curvflow.tasks.training.gradients import (
    Gradients,
    Leaves,
    Noise,
    gradient_at,
    gradients,
    parts_of,
)
from curvflow.tasks.training.state import Checkpoints, Stateful
from curvflow.tasks.training.step_context import Step, StepNorms
from curvflow.tasks.training.stopping_criteria import Divergence, EarlyStopping
from curvflow.tasks.training.updates import Updates

# Epochs between checks for remaining models: each check waits for the device.
CHECK_EVERY = 16


@dataclass
class Fit:
    """State and results of the training of M models.

    A model diverges in the first epoch in which a batch loss or a weight is not finite,
    or the mean of its batch losses exceeds the bound. At epoch 0 and the last, which
    are always recorded, the same holds for the recorded losses, so that divergence does
    not depend on how often training is recorded. A diverged model stays in the batch,
    where its numbers do not affect other models.

    Attributes:
        problem: network and loss.
        weights: present parameters, (M, D).
        statistics: statistics that the networks keep of their data, (M, S).
        seeds: seeds of the models.
        updates: the learning rules.
        batches: the mini-batches in their order.
        curves: the recorded curves.
        checkpoints: the stored weights; the last of their epochs ends training.
        divergence: the diverged models, with epoch and cause.
        scales: the stored preconditioners, followed by rate and bound; None for none.
        early_stopping: the models that have reached their target loss; None trains all
            models to the end.
        step_norms: mean lengths of steps; None if they are not recorded.
        compiler: mode of torch.compile; `none` computes call by call.
        accumulation: parts of a batch whose gradients are computed one after another.
        label_noise: replaces labels of training; None for none.
        augmenter: changes inputs of training; None for none.
        epoch: the current epoch; 0 has no steps.
        step: batches of this epoch already used.
    """

    problem: Problem
    weights: Tensor
    statistics: Tensor
    seeds: Sequence[int]
    updates: Updates
    batches: Batches
    curves: Curves
    checkpoints: Checkpoints
    divergence: Divergence
    scales: Checkpoints | None = None
    early_stopping: EarlyStopping | None = None
    step_norms: StepNorms | None = None
    compiler: str = "none"
    accumulation: int = 1
    label_noise: LabelNoise | None = None
    augmenter: Augmenter | None = None
    epoch: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        """Begin at epoch 0."""
        self._leaves: Leaves | None = None
        if self.problem.network.takes_leaves:
            self._leaves = Leaves(self.problem.network.layout, self.weights)
        self.begin(0, self.weights)

    @property
    def last(self) -> int:
        """The epoch that ends training."""
        return self.checkpoints.epochs[-1]

    def begin(self, epoch: int, weights_MD: Tensor) -> None:
        """Begin an epoch.

        Args:
            epoch: its number.
            weights_MD: parameters before it.
        """
        self.epoch, self.step = epoch, 0
        self.weights = self._before_MD = weights_MD
        # Sum of the losses of this epoch's batches.
        self._total_M = weights_MD.new_zeros(len(weights_MD))
        if self.step_norms is not None:
            self.step_norms.begin()

    def run(self, after_step: Callable[[], None]) -> None:
        """Train to the end.

        Args:
            after_step: called after each step, with a consistent state, so that it may
                raise.
        """
        while self.epoch <= self.last:
            if self.epoch:
                self._train(after_step)
            self._record(is_end=self.epoch in (0, self.last))
            if self._is_over():
                break
            self.begin(self.epoch + 1, self.weights)
        self._freeze_stopped()

    def _is_over(self) -> bool:
        """Return True if no model is left to train."""
        if self.early_stopping is not None:
            return not (
                self.divergence.alive.cpu() & ~self.early_stopping.stopped
            ).any()
        return self.epoch % CHECK_EVERY == 0 and not self.divergence.alive.any()

    def _freeze_stopped(self) -> None:
        """Set later curves and checkpoints of stopped models to the state they had."""
        if self.early_stopping is None:
            return
        for model in self.early_stopping.stopped.nonzero().flatten().tolist():
            epoch = int(self.early_stopping.epoch_M[model])
            stopped = self.early_stopping.of(model)
            self.curves.fill_from(model, epoch, stopped.measured)
            self.checkpoints.fill_from(model, epoch, stopped.weights)
            if self.scales is not None and stopped.scales is not None:
                self.scales.fill_from(model, epoch, stopped.scales)

    def states(self) -> list[Tensor]:
        """Return the state of each model's rule at the end of its training."""
        vectors = self.updates.vectors(self.weights)
        if self.early_stopping is not None:
            for model in self.early_stopping.stopped.nonzero().flatten().tolist():
                vectors[model] = self.early_stopping.of(model).state
        return vectors

    def result(self) -> Tensor:
        """Return the resulting parameters and statistics, (M, D + S).

        If a rule averages weights for its result, a batch norm's statistics are those
        of the averaged weights over the training data.
        """
        weights_MD = self.updates.evaluated(self.weights)
        statistics_MS = self.statistics
        averaged_M1 = torch.tensor(self.updates.averaged)[:, None]
        moves = statistics_MS.shape[1] and self.problem.network.moves_statistics
        if moves and averaged_M1.any():
            of_average_MS = self._statistics_of(weights_MD)
            averaged_M1 = averaged_M1.to(weights_MD.device)
            statistics_MS = torch.where(averaged_M1, of_average_MS, statistics_MS)
        return torch.cat([weights_MD, statistics_MS], dim=1)

    def _train(self, after_step: Callable[[], None]) -> None:
        """Take the remaining steps of the current epoch."""
        self.updates.begin_epoch(self.epoch - 1, self.last)
        wants = self.updates.wants_product(self.epoch - 1)
        without = wants.index(True) if True in wants else len(wants)
        # Batch sums add up to the loss over the data, batch means by their shares.
        is_sum = self.problem.criterion.is_sum
        for batch in self.batches.epoch(self.step):
            self.updates.begin_step(self._position())
            batch = self._changed(batch)
            noise = self._noise("dropout")
            result = gradients(
                self.problem,
                self.weights,
                self.statistics,
                batch,
                noise,
                without=without,
                compiler=self.compiler,
                accumulation=self.accumulation,
                leaves=self._leaves,
            )
            share = 1 if is_sum else batch.count / self.batches.used
            self._total_M = self._total_M + share * result.losses
            self._step(batch, result, wants)
            after_step()
        if self.updates.watches:
            self.updates.watch(self.weights, self.curves.validate(self.result()))
        finite_M = torch.isfinite(self.weights).all(1)
        self._judge(self._total_M, finite_M)

    def _changed(self, batch: Samples) -> Samples:
        """Return a batch with new draws of its labels and inputs."""
        if self.label_noise is not None:
            batch = self.label_noise.applied(batch, self._noise("labels"))
        if self.augmenter is not None:
            batch = self.augmenter.applied(batch, self._noise("augmentation"))
        return batch

    def _judge(self, loss_M: Tensor, finite_M: Tensor) -> None:
        if self.early_stopping is not None:  # numbers after stopping are ignored
            stopped_M = self.early_stopping.stopped.to(loss_M.device)
            loss_M = loss_M.masked_fill(stopped_M, 0)
            finite_M = finite_M | stopped_M
        self.divergence.judge(self.epoch, loss_M, finite_M)

    def _step(self, batch: Samples, gradient: Gradients, wants: Sequence[bool]) -> None:
        def step_of(models: slice | Tensor) -> Step:
            first = models.start if isinstance(models, slice) else int(models[0])
            noise = self._noise("rule").of(models)
            dropout = self._noise("dropout").of(models)
            held = self.statistics[models], batch.models(models), dropout
            return Step(
                epoch=self.epoch - 1,
                count=noise.step,
                begins_epoch=self.step == 0,
                ends_epoch=self.step + 1 == self.batches.steps,
                problem=self.problem,
                statistics=held[0],
                batch=held[1],
                product=gradient.product_of(models) if wants[first] else None,
                draw=noise.uniform(),
                dropout=lambda chosen: dropout.of(chosen).uniform(),
                gradient_at=lambda weights_MD: gradient_at(
                    self.problem,
                    weights_MD,
                    *held,
                    compiler=self.compiler,
                    accumulation=self.accumulation,
                    leaves=self._leaves,
                ),
            )

        before_MD = self.weights
        self.weights = self.updates.step(gradient.gradient, before_MD, step_of)
        if self.step_norms is not None:
            rates_M, _ = self.updates.rates(self._position())
            self.step_norms.add(self.weights - before_MD, rates_M)
        self.statistics = gradient.statistics
        self.step += 1

    def _position(self, step: int | None = None) -> Position:
        """Return the position of a step of the epoch; by default of the next one."""
        step = self.step if step is None else step
        return Position(max(0, self.epoch - 1), self.last, step, self.batches.steps)

    def _noise(self, purpose: str) -> Noise:
        taken = (self.epoch - 1) * self.batches.steps + self.step
        return Noise(self.seeds, taken, purpose, self.weights)

    @torch.no_grad()
    def _statistics_of(self, weights_MD: Tensor) -> Tensor:
        """Return a batch norm's statistics for given weights over the training data.

        They are means over what it normalises in training: batches, or their parts.
        """
        network = self.problem.network
        share_S, moves_S = network.batch_shares(self.statistics)
        begun_MS = torch.where(moves_S, 0, self.statistics)
        total_MS = torch.zeros_like(self.statistics)
        passes = (
            (batch.rows(part.rows).inputs, part)
            for batch in self.batches.in_order()
            for part in parts_of(batch.count, self.accumulation)
        )
        for count, (inputs, part) in enumerate(passes, start=1):
            draw = part.draw(self._noise("dropout").uniform())
            _, after_MS = network.training_outputs(weights_MD, begun_MS, inputs, draw)
            total_MS = total_MS + (after_MS / share_S - total_MS) / count
        return torch.where(share_S > 0, total_MS, self.statistics)

    def _record(self, *, is_end: bool) -> None:
        """Record curves and checkpoints of the epoch just completed."""
        is_kept = self.epoch in self.checkpoints.epochs
        wants = self.curves.wants(self.epoch)
        if not (is_kept or wants or self.early_stopping is not None):
            return
        result_MW = self.result()
        measured = self._measured(result_MW) if wants else None
        if measured is not None:
            if is_end:
                self._judge_end(measured)
            self.curves.record(self.epoch, measured, self.divergence.alive)
        self.checkpoints.keep(self.epoch, result_MW, self.divergence.alive)
        if self.scales is not None and is_kept:
            scales_MS = self.updates.scales(self.weights)
            self.scales.keep(self.epoch, scales_MS, self.divergence.alive)
        if self.early_stopping is not None:
            self._stop_early(self.early_stopping, result_MW, measured)

    def _measured(self, result_MW: Tensor) -> Tensor:
        return self.curves.measure(
            result_MW,
            update_MD=self.weights - self._before_MD,
            rates=self.updates.rates(self._position(max(0, self.step - 1))),
            logged=self.updates.recorded(),
            step_norm_M=None if self.step_norms is None else self.step_norms.mean(),
        )

    def _stop_early(
        self, early_stopping: EarlyStopping, result_MW: Tensor, measured: Tensor | None
    ) -> None:
        """Store the models whose training loss has reached its target."""
        if measured is None:
            loss_M = self.curves.training_loss(result_MW)
        else:
            loss_M = measured[RECORDED.index("train_loss")]
        stopping_M = early_stopping.stopping_now(loss_M, self.divergence.alive)
        if stopping_M.any():
            early_stopping.keep(
                stopping_M,
                self.epoch,
                self._measured(result_MW) if measured is None else measured,
                result_MW,
                self.updates.vectors(self.weights),
                None if self.scales is None else self.updates.scales(self.weights),
            )

    def _judge_end(self, measured: Tensor) -> None:
        # Without test data the test loss is NaN.
        finite_M = ~torch.isinf(measured[RECORDED.index("test_loss")])
        train_M = measured[RECORDED.index("train_loss")]
        self._judge(train_M, finite_M)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that change in training, by name."""
        parts = {
            f"{name}.{key}": tensor
            for name, part in self._parts().items()
            for key, tensor in part.tensors().items()
        }
        return parts | {
            "position": torch.tensor([self.epoch, self.step]),
            "weights": self.weights,
            "statistics": self.statistics,
            "before": self._before_MD,
            "total": self._total_M,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        for part, stateful in self._parts().items():
            prefix = f"{part}."
            stateful.restore(
                {
                    name.removeprefix(prefix): tensor
                    for name, tensor in tensors.items()
                    if name.startswith(prefix)
                }
            )
        self.epoch, self.step = tensors["position"].tolist()
        self.weights, self._before_MD = tensors["weights"], tensors["before"]
        self._total_M = tensors["total"]
        self.statistics = tensors["statistics"]

    def _parts(self) -> dict[str, Stateful]:
        optional: dict[str, Stateful | None] = {
            "scales": self.scales,
            "arrivals": self.early_stopping,
            "step_norms": self.step_norms,
        }
        return {name: part for name, part in optional.items() if part is not None} | {
            "updates": self.updates,
            "batches": self.batches,
            "curves": self.curves,
            "checkpoints": self.checkpoints,
            "divergence": self.divergence,
        }
