"""The training loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.problems import Problem, Samples
from curvflow.tasks.training.batches import Batches
from curvflow.tasks.training.curves import Curves, reduced
from curvflow.tasks.training.divergence import Divergence
from curvflow.tasks.training.passes import in_passes
from curvflow.tasks.training.updates import Updates

# Epochs between looks at whether any model is left: each look waits for the device.
LOOK_EVERY = 16


@dataclass(frozen=True)
class Fit:
    """What training leaves.

    Attributes:
        checkpoints: weights kept, (C, M, D), float64 on the CPU; NaN once diverged.
        divergence: which models diverged, when and why.
    """

    checkpoints: Tensor
    divergence: Divergence


def fit(
    problem: Problem,
    weights_MD: Tensor,
    *,
    updates: Updates,
    batches: Batches,
    curves: Curves,
    kept: Sequence[int],
    diverged_above: float | None,
) -> Fit:
    """Train M models at once.

    A model diverges in the first epoch in which a batch loss or a weight is not finite,
    or the mean of its batch losses exceeds the bound. At epoch 0 and the last, which
    are always recorded, the recorded losses are held to the same, so that nothing
    depends on how often is recorded. A model that has diverged stays in the batch,
    where its numbers touch no sibling.

    Args:
        problem: network and loss.
        weights_MD: initial weights.
        updates: the learning rules.
        batches: the data order.
        curves: filled with what is recorded.
        kept: epochs whose weights are kept; the last one ends training.
        diverged_above: multiple of the loss at epoch 0 that is out of bounds.

    Returns:
        Checkpoints and divergence.
    """
    models, size = weights_MD.shape
    rows = {epoch: row for row, epoch in enumerate(kept)}
    shape = (len(kept), models, size)
    checkpoints_CMD = torch.full(shape, torch.nan, dtype=torch.float64)
    divergence = Divergence(models, weights_MD.device, diverged_above)
    before_MD = weights_MD
    for epoch in range(kept[-1] + 1):
        if epoch:
            before_MD = weights_MD
            weights_MD, loss_M = _epoch(problem, weights_MD, updates, batches)
            divergence.judge(epoch, loss_M, torch.isfinite(weights_MD).all(1))
        if curves.wants(epoch):
            measured = curves.measure(weights_MD, before_MD)
            if epoch in (0, kept[-1]):
                divergence.judge(epoch, measured[0], ~torch.isinf(measured[1]))
            curves.record(epoch, measured, divergence.alive)
        if epoch in rows:
            lost_M1 = ~divergence.alive.unsqueeze(1)
            shown = weights_MD.double().masked_fill(lost_M1, torch.nan)
            checkpoints_CMD[rows[epoch]] = shown.cpu()
        if epoch % LOOK_EVERY == 0 and not divergence.alive.any():
            break
    return Fit(checkpoints_CMD, divergence)


def _epoch(
    problem: Problem, weights_MD: Tensor, updates: Updates, batches: Batches
) -> tuple[Tensor, Tensor]:
    """Return the weights after one epoch, and the loss over its batches, (M,)."""
    total_M = weights_MD.new_zeros(len(weights_MD))
    for batch in batches.epoch():
        losses_M, gradient_MD = loss_and_gradient(problem, weights_MD, batch)
        # Sums over batches add up to the loss over the data, means by their shares.
        share = 1 if problem.loss == "sse" else batch.count / batches.count
        total_M = total_M + share * losses_M
        weights_MD = updates.step(gradient_MD, weights_MD)
    return weights_MD, total_M


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
