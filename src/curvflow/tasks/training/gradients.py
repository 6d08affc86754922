"""Losses of a batch of models on their batches, and what is derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.problems import Problem, Samples
from curvflow.tasks.training.compiled import compiled
from curvflow.tasks.training.noise import Noise
from curvflow.tasks.training.passes import in_passes


@dataclass(frozen=True)
class Gradients:
    """What one step needs of M models.

    Attributes:
        losses: of the batch, (M,).
        gradient: by the parameters, (M, D).
        statistics: after the batch, (M, S).
        product: H w for the last m of the models, (m, D); those before have none.
    """

    losses: Tensor
    gradient: Tensor
    statistics: Tensor
    product: Tensor

    def product_of(self, models: slice | Tensor) -> Tensor:
        """Return H w of some of the models; they must have it."""
        without = len(self.losses) - len(self.product)
        if isinstance(models, slice):
            return self.product[models.start - without : models.stop - without]
        return self.product[models - without]


def gradients(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    noise: Noise,
    *,
    without: int,
    compiler: str = "none",
) -> Gradients:
    """Derive the batch losses of models by their parameters.

    Models do not interact, so the gradient of the sum of their losses holds each one's.

    Args:
        problem: network and loss.
        weights_MD: parameters.
        statistics_MS: statistics before the step.
        samples: their batches.
        noise: for dropout.
        without: how many models, the first ones, go without the product H w.
        compiler: mode of torch.compile; `none` computes call by call.

    Returns:
        Losses, gradients and products with the Hessian.

    Reference:
        Pearlmutter (1994), Neural Computation 6(1), for H w as the gradient of g'w with
        w held.
    """
    models = len(weights_MD)
    if 1 in (without, models - without):
        without = 0  # no pass is of a single model

    def one_pass(span: slice, *, has_product: bool) -> tuple[Tensor, ...]:
        own = weights_MD[span], statistics_MS[span], samples.models(span)
        if compiler != "none":
            derive = compiled(problem.text, compiler, has_product=has_product)
            return derive(*own[:2], own[2].inputs, own[2].targets)
        return _one_pass(problem, *own, noise.of(span), has_product=has_product)

    parts = [
        in_passes(run, problem, span, samples, weights_MD)
        for run, span in (
            (partial(one_pass, has_product=False), slice(0, without)),
            (partial(one_pass, has_product=True), slice(without, models)),
        )
        if span.start < span.stop
    ]
    losses_M, gradient_MD, after_MS = (
        torch.cat(several) if len(several) > 1 else several[0]
        for several in zip(*(part[:3] for part in parts), strict=True)
    )
    product_mD = parts[-1][3] if without < models else weights_MD[:0]
    return Gradients(losses_M, gradient_MD, after_MS, product_mD)


def _one_pass(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    noise: Noise,
    *,
    has_product: bool,
) -> tuple[Tensor, ...]:
    weights_MD = weights_MD.detach().requires_grad_()
    outputs_MNC, after_MS = problem.network.training_outputs(
        weights_MD, statistics_MS, samples.inputs, noise.uniform()
    )
    losses_MN = sample_losses(problem.loss)(outputs_MNC, samples.targets)
    losses_M = problem.reduced(losses_MN)
    (gradient_MD,) = torch.autograd.grad(
        losses_M.sum(), weights_MD, create_graph=has_product
    )
    found = losses_M.detach(), gradient_MD.detach(), after_MS
    if not has_product:
        return found
    along = (gradient_MD * weights_MD.detach()).sum()
    (product_MD,) = torch.autograd.grad(along, weights_MD)
    return *found, product_MD
