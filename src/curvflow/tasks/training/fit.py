"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.problems import Problem, Samples
from curvflow.tasks.training.batches import Batches
from curvflow.tasks.training.checkpoints import Checkpoints
from curvflow.tasks.training.curves import Curves, reduced
from curvflow.tasks.training.divergence import Divergence
from curvflow.tasks.training.passes import in_passes
from curvflow.tasks.training.state import Part
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
        weights: present weights, (M, D).
        updates: the learning rules.
        batches: the data order.
        curves: what is recorded.
        checkpoints: the weights kept; the last of their epochs ends training.
        divergence: which models diverged, when and why.
        epoch: the one under way; 0 has no steps.
        step: batches of this epoch already used.
    """

    problem: Problem
    weights: Tensor
    updates: Updates
    batches: Batches
    curves: Curves
    checkpoints: Checkpoints
    divergence: Divergence
    epoch: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        """Begin at the beginning."""
        self.begin(0, self.weights)

    def begin(self, epoch: int, weights_MD: Tensor) -> None:
        """Turn to an epoch.

        Args:
            epoch: its number.
            weights_MD: weights before it.
        """
        self.epoch, self.step = epoch, 0
        self.weights = self._before_MD = weights_MD
        # Of the losses of this epoch's batches.
        self._total_M = weights_MD.new_zeros(len(weights_MD))

    def run(self, after_step: Callable[[], None]) -> None:
        """Train to the end.

        Args:
            after_step: called after each step; what it raises leaves a whole state.
        """
        last = self.checkpoints.epochs[-1]
        while self.epoch <= last:
            if self.epoch:
                self._train(after_step)
            self._record(is_end=self.epoch in (0, last))
            if self.epoch % LOOK_EVERY == 0 and not self.divergence.alive.any():
                break
            self.begin(self.epoch + 1, self.weights)

    def _train(self, after_step: Callable[[], None]) -> None:
        """Do what is left of the epoch under way."""
        for batch in self.batches.epoch(self.step):
            losses_M, gradient_MD = loss_and_gradient(self.problem, self.weights, batch)
            # Sums over batches add up to the loss over the data, means by their shares.
            is_sum = self.problem.loss == "sse"
            share = 1 if is_sum else batch.count / self.batches.count
            self._total_M = self._total_M + share * losses_M
            self.weights = self.updates.step(gradient_MD, self.weights)
            self.step += 1
            after_step()
        finite_M = torch.isfinite(self.weights).all(1)
        self.divergence.judge(self.epoch, self._total_M, finite_M)

    def _record(self, *, is_end: bool) -> None:
        """Record and keep what is wanted of the epoch just completed."""
        if self.curves.wants(self.epoch):
            measured = self.curves.measure(self.weights, self._before_MD)
            if is_end:
                finite_M = ~torch.isinf(measured[1])
                self.divergence.judge(self.epoch, measured[0], finite_M)
            self.curves.record(self.epoch, measured, self.divergence.alive)
        self.checkpoints.keep(self.epoch, self.weights, self.divergence.alive)

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

    def _parts(self) -> dict[str, Part]:
        return {
            "updates": self.updates,
            "batches": self.batches,
            "curves": self.curves,
            "checkpoints": self.checkpoints,
            "divergence": self.divergence,
        }


def loss_and_gradient(
    problem: Problem, weights_MD: Tensor, samples: Samples
) -> tuple[Tensor, Tensor]:
    """Return each model's loss (M,) and gradient (M, D).

    Models do not interact, so the gradient of the sum of their losses holds each one's.
    """

    def one_pass(weights_MD: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        weights_MD = weights_MD.detach().requires_grad_()
        losses_MN = problem.losses(weights_MD, samples.inputs, samples.targets)
        losses_M = reduced(problem, losses_MN)
        (gradient_MD,) = torch.autograd.grad(losses_M.sum(), weights_MD)
        return losses_M.detach(), gradient_MD

    return in_passes(one_pass, problem, weights_MD, samples)
