"""The training loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.problems import Problem, Samples
from curvflow.tasks.training.batches import Batches
from curvflow.tasks.training.curves import Curves, reduced
from curvflow.tasks.training.passes import in_passes
from curvflow.tasks.training.updates import Updates


@dataclass(frozen=True)
class Fit:
    """What training leaves.

    Attributes:
        checkpoints: weights kept, (C, M, D), float64 on the CPU; NaN once diverged.
        diverged: epoch of divergence, (M,); -1 if none.
    """

    checkpoints: Tensor
    diverged: Tensor


def fit(
    problem: Problem,
    weights_MD: Tensor,
    *,
    updates: Updates,
    batches: Batches,
    curves: Curves,
    kept: Sequence[int],
) -> Fit:
    """Train M models at once.

    A model diverges in the first epoch in which a batch loss, a weight or a recorded
    loss is not finite, or a recorded loss exceeds its bound. It stays in the batch,
    where its numbers touch no sibling.

    Args:
        problem: network and loss.
        weights_MD: initial weights.
        updates: the learning rules.
        batches: the data order.
        curves: filled with what is recorded.
        kept: epochs whose weights are kept; the last one ends training.

    Returns:
        Checkpoints and epochs of divergence.
    """
    models, size = weights_MD.shape
    rows = {epoch: row for row, epoch in enumerate(kept)}
    checkpoints_CMD = torch.full(
        (len(kept), models, size), torch.nan, dtype=torch.float64
    )
    diverged_M = torch.full((models,), -1)
    alive_M = torch.ones(models, dtype=torch.bool, device=weights_MD.device)
    before_MD = weights_MD
    for epoch in range(kept[-1] + 1):
        if epoch:
            before_MD = weights_MD
            weights_MD, finite_M = _epoch(problem, weights_MD, updates, batches)
            alive_M = alive_M & finite_M
        if curves.wants(epoch):
            alive_M = curves.record(epoch, weights_MD, before_MD, alive_M)
        alive_here_M = alive_M.cpu()
        diverged_M[~alive_here_M & (diverged_M < 0)] = epoch
        if epoch in rows:
            shown = weights_MD.double().masked_fill(~alive_M.unsqueeze(1), torch.nan)
            checkpoints_CMD[rows[epoch]] = shown.cpu()
        if not alive_here_M.any():
            break
    return Fit(checkpoints_CMD, diverged_M)


def _epoch(
    problem: Problem, weights_MD: Tensor, updates: Updates, batches: Batches
) -> tuple[Tensor, Tensor]:
    """Return the weights after one epoch, and whose losses and weights are finite."""
    total_M = weights_MD.new_zeros(len(weights_MD))
    for batch in batches.epoch():
        losses_M, gradient_MD = loss_and_gradient(problem, weights_MD, batch)
        total_M = total_M + losses_M
        weights_MD = updates.step(gradient_MD, weights_MD)
    finite_M = torch.isfinite(total_M) & torch.isfinite(weights_MD).all(1)
    return weights_MD, finite_M


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
