"""Losses and gradients of a batch of models, compiled, with the noise they draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.func import grad

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import Problem, Samples, read
from curvflow.tasks.numerics.derivatives.batches import sample_losses
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.cache_blocks import in_passes

# From parameters, statistics, inputs and targets to losses, gradient, statistics, and
# the product H w where it is derived.
Compiled = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


@lru_cache(maxsize=64)
def compiled(text: str, mode: str, *, has_product: bool) -> Compiled:
    """Compile the derivatives of a problem's batch losses.

    torch.compile has no second derivatives by autograd, so they are taken by
    torch.func, which it looks through.

    Args:
        text: describes the problem.
        mode: of torch.compile; `reduce-overhead` replays CUDA graphs on a GPU.
        has_product: whether H w is derived too.

    Returns:
        The function; its first call, and the first of other shapes, takes long.

    Raises:
        InputError: the network draws random numbers in training.
    """
    problem = read(text)
    _try(problem)

    def losses_of(
        weights_MD: Tensor, statistics_MS: Tensor, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs_MNC, after_MS = problem.network.training_outputs(
            weights_MD, statistics_MS, inputs, _refuse
        )
        losses_MN = sample_losses(problem.loss)(outputs_MNC, targets)
        losses_M = problem.reduced(losses_MN)
        return losses_M.sum(), (losses_M, after_MS)

    def first(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        gradient_MD, (losses_M, after_MS) = grad(losses_of, has_aux=True)(
            weights_MD, *rest
        )
        return losses_M, gradient_MD, after_MS

    def second(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        def along(moving_MD: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            found = first(moving_MD, *rest)
            return (found[1] * weights_MD).sum(), found

        product_MD, found = grad(along, has_aux=True)(weights_MD)
        return *found, product_MD

    made: Compiled = torch.compile(second if has_product else first, mode=mode)
    return _copied(made) if mode == "reduce-overhead" else made


def _copied(made: Compiled) -> Compiled:
    """Return a function whose results outlive its next call.

    A CUDA graph writes to the same memory whenever it is replayed, while those of
    several passes are joined, and statistics go into the next step.
    """

    def copied(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(found.clone() for found in made(*tensors))

    return copied


def _try(problem: Problem) -> None:
    """Let a network say that it draws, before its compilation fails in a riddle."""
    network = problem.network
    weights_MD = torch.zeros(1, network.num_parameters)
    statistics_MS = network.first_statistics().float().unsqueeze(0)
    inputs = torch.zeros(1, 2, *problem.input_shape)
    with torch.no_grad():
        network.training_outputs(weights_MD, statistics_MS, inputs, _refuse)


def _refuse(shape: tuple[int, ...]) -> Tensor:
    raise InputError(
        "--compile: expected a network that draws nothing in training, got one with "
        "dropout. Run without --compile."
    )


@dataclass(frozen=True)
class Noise:
    """What the models of a batch draw in one step, told apart by purpose.

    Streams begin anew at each step, so that nothing needs to be kept to go on. Models
    of equal seeds draw the same, whatever their rules.

    Attributes:
        seeds: one per model.
        step: steps taken before this one.
        purpose: what is drawn, such as `dropout`.
        like: a tensor of the dtype and device wanted.
    """

    seeds: Sequence[int]
    step: int
    purpose: str
    like: Tensor

    def uniform(self) -> Uniform:
        """Return a source of uniform numbers; equal sources draw the same."""
        return Uniform(self)

    def of(self, models: slice | Tensor) -> Noise:
        """Return the noise of some of the models."""
        if isinstance(models, slice):
            chosen = self.seeds[models]
        else:
            chosen = [self.seeds[model] for model in models.tolist()]
        return Noise(chosen, self.step, self.purpose, self.like)


class Uniform:
    """Draws uniform numbers, one shape after another."""

    def __init__(self, noise: Noise) -> None:
        """Take the noise it belongs to; streams are opened at the first draw."""
        self._noise = noise
        self._streams: dict[int, torch.Generator] = {}

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """Return numbers in [0, 1), (M, *shape)."""
        noise = self._noise
        if not self._streams:
            purpose = f"{noise.purpose}:{noise.step}"
            self._streams = {s: stream(s, purpose) for s in set(noise.seeds)}
        drawn = {
            seed: torch.rand(shape, generator=generator, dtype=noise.like.dtype)
            for seed, generator in self._streams.items()
        }
        return torch.stack([drawn[seed] for seed in noise.seeds]).to(noise.like.device)


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
