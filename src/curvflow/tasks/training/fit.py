"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.trained import RECORDED
from curvflow.tasks.networks.layers import MOMENTUM
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.training.batches import Batches
from curvflow.tasks.training.curves import Curves
from curvflow.tasks.training.endings import Arrivals, Divergence
from curvflow.tasks.training.gradients import Gradients, Noise, gradients
from curvflow.tasks.training.state import Checkpoints, Part
from curvflow.tasks.training.step_context import Step, StepNorms
from curvflow.tasks.training.updates import Updates

# Epochs between looks at whether any model is left: each look waits for the device.
LOOK_EVERY = 16


@dataclass
class Fit:
    """M models in training: all that its further course depends on, and its results.

    A model diverges in the first epoch in which a batch loss or a weight is not finite,
    or the mean of its batch losses exceeds the bound. At epoch 0 and the last, which
    are always recorded, the recorded losses are held to the same, so that nothing
    depends on how often is recorded. A model that has diverged stays in the batch,
    where its numbers touch no sibling.

    Attributes:
        problem: network and loss.
        weights: present parameters, (M, D).
        statistics: those that the networks keep of their data, (M, S).
        seeds: of the models.
        updates: the learning rules.
        batches: the data order.
        curves: what is recorded.
        checkpoints: the weights kept; the last of their epochs ends training.
        divergence: which models diverged, when and why.
        scales: the preconditioners kept, with rate and bound behind; None for none.
        arrivals: which models have come to the loss that stops them; None trains all to
            the end.
        step_norms: mean lengths of steps; None if they are not recorded.
        compiler: mode of torch.compile; `none` computes call by call.
        epoch: the one under way; 0 has no steps.
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
    arrivals: Arrivals | None = None
    step_norms: StepNorms | None = None
    compiler: str = "none"
    epoch: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        """Begin at the beginning."""
        self.begin(0, self.weights)

    @property
    def last(self) -> int:
        """The epoch that ends training."""
        return self.checkpoints.epochs[-1]

    def begin(self, epoch: int, weights_MD: Tensor) -> None:
        """Turn to an epoch.

        Args:
            epoch: its number.
            weights_MD: parameters before it.
        """
        self.epoch, self.step = epoch, 0
        self.weights = self._before_MD = weights_MD
        # Of the losses of this epoch's batches.
        self._total_M = weights_MD.new_zeros(len(weights_MD))
        if self.step_norms is not None:
            self.step_norms.begin()

    def run(self, after_step: Callable[[], None]) -> None:
        """Train to the end.

        Args:
            after_step: called after each step; what it raises leaves a whole state.
        """
        while self.epoch <= self.last:
            if self.epoch:
                self._train(after_step)
            self._record(is_end=self.epoch in (0, self.last))
            if self._is_over():
                break
            self.begin(self.epoch + 1, self.weights)
        self._hold()

    def _is_over(self) -> bool:
        """Whether no model is left to train."""
        if self.arrivals is not None:
            return not (self.divergence.alive.cpu() & ~self.arrivals.arrived).any()
        return self.epoch % LOOK_EVERY == 0 and not self.divergence.alive.any()

    def _hold(self) -> None:
        """Let what is recorded and kept of models that arrived be that of then."""
        if self.arrivals is None:
            return
        for model in self.arrivals.arrived.nonzero().flatten().tolist():
            epoch, found = int(self.arrivals.epoch_M[model]), self.arrivals.of(model)
            self.curves.hold(model, epoch, found.measured)
            self.checkpoints.hold(model, epoch, found.weights)
            if self.scales is not None and found.scales is not None:
                self.scales.hold(model, epoch, found.scales)

    def states(self) -> list[Tensor]:
        """Return what each model's rule keeps at the end of its training."""
        found = self.updates.vectors(self.weights)
        if self.arrivals is not None:
            for model in self.arrivals.arrived.nonzero().flatten().tolist():
                found[model] = self.arrivals.of(model).state
        return found

    def result(self) -> Tensor:
        """Return what training has come to, parameters and statistics, (M, D + S).

        Where a rule gives an average for its result, a batch norm's statistics are
        those of the average over the training data.
        """
        weights_MD = self.updates.evaluated(self.weights)
        statistics_MS = self.statistics
        averaged_M1 = torch.tensor(self.updates.averaged)[:, None]
        if statistics_MS.shape[1] and averaged_M1.any():
            of_average_MS = self._statistics_of(weights_MD)
            averaged_M1 = averaged_M1.to(weights_MD.device)
            statistics_MS = torch.where(averaged_M1, of_average_MS, statistics_MS)
        return torch.cat([weights_MD, statistics_MS], dim=1)

    def _train(self, after_step: Callable[[], None]) -> None:
        """Do what is left of the epoch under way."""
        self.updates.begin_epoch(self.epoch - 1, self.last)
        wants = self.updates.wants_product(self.epoch - 1)
        without = wants.index(True) if True in wants else len(wants)
        # Sums over batches add up to the loss over the data, means by their shares.
        is_sum = self.problem.loss == "sse"
        for batch in self.batches.epoch(self.step):
            noise = self._noise("dropout")
            found = gradients(
                self.problem,
                self.weights,
                self.statistics,
                batch,
                noise,
                without=without,
                compiler=self.compiler,
            )
            share = 1 if is_sum else batch.count / self.batches.used
            self._total_M = self._total_M + share * found.losses
            self._step(batch, found, wants)
            after_step()
        if self.updates.watches:
            self.updates.watch(self.weights, self.curves.validate(self.result()))
        finite_M = torch.isfinite(self.weights).all(1)
        self._judge(self._total_M, finite_M)

    def _judge(self, loss_M: Tensor, finite_M: Tensor) -> None:
        if self.arrivals is not None:  # whose numbers go on without meaning
            arrived_M = self.arrivals.arrived.to(loss_M.device)
            loss_M = loss_M.masked_fill(arrived_M, 0)
            finite_M = finite_M | arrived_M
        self.divergence.judge(self.epoch, loss_M, finite_M)

    def _step(self, batch: Samples, found: Gradients, wants: Sequence[bool]) -> None:
        def now(models: slice | Tensor) -> Step:
            first = models.start if isinstance(models, slice) else int(models[0])
            own = self._noise("rule").of(models)
            dropout = self._noise("dropout").of(models)
            return Step(
                epoch=self.epoch - 1,
                count=own.step,
                begins_epoch=self.step == 0,
                ends_epoch=self.step + 1 == self.batches.steps,
                problem=self.problem,
                batch=batch.models(models),
                product=found.product_of(models) if wants[first] else None,
                draw=own.uniform(),
                dropout=lambda some: dropout.of(some).uniform(),
            )

        before_MD = self.weights
        self.weights = self.updates.step(found.gradient, before_MD, now)
        if self.step_norms is not None:
            rates_M, _ = self.updates.rates(self.epoch - 1, self.last)
            self.step_norms.add(self.weights - before_MD, rates_M)
        self.statistics = found.statistics
        self.step += 1

    def _noise(self, purpose: str) -> Noise:
        taken = (self.epoch - 1) * self.batches.steps + self.step
        return Noise(self.seeds, taken, purpose, self.weights)

    @torch.no_grad()
    def _statistics_of(self, weights_MD: Tensor) -> Tensor:
        """Return a batch norm's statistics of other weights, over the training data."""
        total_MS = torch.zeros_like(self.statistics)
        for count, batch in enumerate(self.batches.in_order(), start=1):
            noise = self._noise("dropout")
            _, after_MS = self.problem.network.training_outputs(
                weights_MD, torch.zeros_like(total_MS), batch.inputs, noise.uniform()
            )
            total_MS = total_MS + (after_MS / MOMENTUM - total_MS) / count
        return total_MS

    def _record(self, *, is_end: bool) -> None:
        """Record and keep what is wanted of the epoch just completed."""
        is_kept = self.epoch in self.checkpoints.epochs
        wants = self.curves.wants(self.epoch)
        if not (is_kept or wants or self.arrivals is not None):
            return
        result_MW = self.result()
        measured = self._measured(result_MW) if wants else None
        if measured is not None:
            if is_end:
                self._judge_end(measured)
            self.curves.record(self.epoch, measured, self.divergence.alive)
        self.checkpoints.keep(self.epoch, result_MW, self.divergence.alive)
        if self.scales is not None and is_kept:
            self.scales.keep(self.epoch, self._scales(), self.divergence.alive)
        if self.arrivals is not None:
            self._arrive(self.arrivals, result_MW, measured)

    def _measured(self, result_MW: Tensor) -> Tensor:
        return self.curves.measure(
            result_MW,
            update_MD=self.weights - self._before_MD,
            rates=self.updates.rates(max(0, self.epoch - 1), self.last),
            step_norm_M=None if self.step_norms is None else self.step_norms.mean(),
        )

    def _scales(self) -> Tensor:
        return torch.cat(self.updates.preconditioners(self.weights), dim=1)

    def _arrive(
        self, arrivals: Arrivals, result_MW: Tensor, measured: Tensor | None
    ) -> None:
        """Keep the models whose training loss is low enough now."""
        if measured is None:
            loss_M = self.curves.training_loss(result_MW)
        else:
            loss_M = measured[RECORDED.index("train_loss")]
        due_M = arrivals.due(loss_M, self.divergence.alive)
        if due_M.any():
            arrivals.keep(
                due_M,
                self.epoch,
                self._measured(result_MW) if measured is None else measured,
                result_MW,
                self.updates.vectors(self.weights),
                None if self.scales is None else self._scales(),
            )

    def _judge_end(self, measured: Tensor) -> None:
        # NaN is the test loss where there are no test data.
        finite_M = ~torch.isinf(measured[RECORDED.index("test_loss")])
        train_M = measured[RECORDED.index("train_loss")]
        self._judge(train_M, finite_M)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that changes, by name."""
        parts = {
            f"{part}.{name}": tensor
            for part, one in self._parts().items()
            for name, tensor in one.tensors().items()
        }
        return parts | {
            "position": torch.tensor([self.epoch, self.step]),
            "weights": self.weights,
            "statistics": self.statistics,
            "before": self._before_MD,
            "total": self._total_M,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to where `tensors` returned these."""
        for part, one in self._parts().items():
            prefix = f"{part}."
            one.restore(
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

    def _parts(self) -> dict[str, Part]:
        some: dict[str, Part | None] = {
            "scales": self.scales,
            "arrivals": self.arrivals,
            "step_norms": self.step_norms,
        }
        return {name: part for name, part in some.items() if part is not None} | {
            "updates": self.updates,
            "batches": self.batches,
            "curves": self.curves,
            "checkpoints": self.checkpoints,
            "divergence": self.divergence,
        }
