"""Losses, gradients and Hessian products of a batch of models, with their dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import Problem, Samples, read
from curvflow.tasks.numerics.derivatives.batches import sample_losses
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.cache_blocks import apply_in_blocks

# From parameters, statistics, inputs and targets to losses, gradient, statistics, and
# the product H w where it is computed.
Compiled = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


@lru_cache(maxsize=64)
def compiled(text: str, mode: str, *, has_product: bool) -> Compiled:
    """Compile the derivatives of a problem's batch losses.

    torch.compile has no second derivatives by autograd, so they are taken by
    torch.func, which it traces.

    Args:
        text: the problem as text.
        mode: mode of torch.compile; `reduce-overhead` replays CUDA graphs on a GPU.
        has_product: compute H w too.

    Returns:
        The function; its first call, and the first with other shapes, takes long.

    Raises:
        InputError: the network draws random numbers in training.
    """
    problem = read(text)
    _check_no_draws(problem)

    def losses_of(
        weights_MD: Tensor, statistics_MS: Tensor, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs_MNC, after_MS = problem.network.training_outputs(
            weights_MD, statistics_MS, inputs, _refuse
        )
        losses_MN = sample_losses(problem.loss)(outputs_MNC, targets)
        losses_M = problem.reduced(losses_MN)
        return losses_M.sum(), (losses_M, after_MS)

    def gradient_of(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        gradient_MD, (losses_M, after_MS) = grad(losses_of, has_aux=True)(
            weights_MD, *rest
        )
        return losses_M, gradient_MD, after_MS

    def product_of(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        def along(moving_MD: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            values = gradient_of(moving_MD, *rest)
            return (values[1] * weights_MD).sum(), values

        product_MD, values = grad(along, has_aux=True)(weights_MD)
        return *values, product_MD

    function: Compiled = torch.compile(
        product_of if has_product else gradient_of, mode=mode
    )
    return _copied(function) if mode == "reduce-overhead" else function


def _copied(function: Compiled) -> Compiled:
    """Return a function whose results outlive its next call.

    A CUDA graph writes to the same memory whenever it is replayed, while results of
    several passes are joined, and statistics enter the next step.
    """

    def copied(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(result.clone() for result in function(*tensors))

    return copied


def _check_no_draws(problem: Problem) -> None:
    """Refuse a network with dropout, whose compilation would fail obscurely."""
    network = problem.network
    weights_MD = torch.zeros(1, network.num_parameters)
    statistics_MS = network.first_statistics().float().unsqueeze(0)
    dtype = torch.int64 if problem.takes_integers else torch.float32
    inputs = torch.zeros(1, 2, *problem.input_shape, dtype=dtype)
    with torch.no_grad():
        network.training_outputs(weights_MD, statistics_MS, inputs, _refuse)


def _refuse(shape: tuple[int, ...]) -> Tensor:
    raise InputError(
        "--compile: compilation cannot be combined with dropout, which draws random "
        "numbers. Run without --compile."
    )


@dataclass(frozen=True)
class Noise:
    """Random numbers of a batch of models in one step, for one purpose.

    Streams begin anew at each step, so that resuming needs no generator state. Models
    with equal seeds draw the same numbers, whatever their rules.

    Attributes:
        seeds: one per model.
        step: steps taken before this one.
        purpose: use of the numbers, such as `dropout`.
        like: a tensor of the dtype and device of the numbers.
    """

    seeds: Sequence[int]
    step: int
    purpose: str
    like: Tensor

    def uniform(self) -> Uniform:
        """Return a source of uniform numbers; equal sources draw the same."""
        return Uniform(self)

    def of(self, models: slice | Tensor) -> Noise:
        """Return the noise of the chosen models."""
        if isinstance(models, slice):
            chosen = self.seeds[models]
        else:
            chosen = [self.seeds[model] for model in models.tolist()]
        return Noise(chosen, self.step, self.purpose, self.like)


class Uniform:
    """Draws uniform numbers, one shape after another."""

    def __init__(self, noise: Noise) -> None:
        """Take the seeds and step; streams are opened at the first draw."""
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
    """Losses, gradients and products of M models for one step.

    Attributes:
        losses: batch losses, (M,).
        gradient: gradients of the losses, (M, D).
        statistics: statistics after the batch, (M, S).
        product: H w of the last m models, (m, D); the others have none.
    """

    losses: Tensor
    gradient: Tensor
    statistics: Tensor
    product: Tensor

    def product_of(self, models: slice | Tensor) -> Tensor:
        """Return H w of the chosen models, which must have it."""
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
    """Compute the batch losses of models and their derivatives by the parameters.

    Models do not interact, so the gradient of the sum of their losses holds the
    gradient of each.

    Args:
        problem: network and loss.
        weights_MD: parameters.
        statistics_MS: statistics before the step.
        samples: batches of the models.
        noise: random numbers for dropout.
        without: number of leading models without the product H w.
        compiler: mode of torch.compile; `none` computes call by call.

    Returns:
        Losses, gradients and products with the Hessian.

    Reference:
        Pearlmutter (1994), Neural Computation 6(1), for H w as the gradient of g'w with
        w fixed.
    """
    models = len(weights_MD)
    if models > 1 and 1 in (without, models - without):
        without = 0  # no pass is of a single model

    def one_pass(span: slice, *, has_product: bool) -> tuple[Tensor, ...]:
        arguments = weights_MD[span], statistics_MS[span], samples.models(span)
        if compiler != "none":
            derive = compiled(problem.text, compiler, has_product=has_product)
            return derive(*arguments[:2], arguments[2].inputs, arguments[2].targets)
        return _one_pass(problem, *arguments, noise.of(span), has_product=has_product)

    parts = [
        apply_in_blocks(run, problem, span, samples, weights_MD)
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
    # Fused attention has no second derivatives.
    with sdpa_kernel(SDPBackend.MATH) if has_product else nullcontext():
        outputs_MNC, after_MS = problem.network.training_outputs(
            weights_MD, statistics_MS, samples.inputs, noise.uniform()
        )
    losses_MN = sample_losses(problem.loss)(outputs_MNC, samples.targets)
    losses_M = problem.reduced(losses_MN)
    (gradient_MD,) = torch.autograd.grad(
        losses_M.sum(), weights_MD, create_graph=has_product
    )
    values = losses_M.detach(), gradient_MD.detach(), after_MS
    if not has_product:
        return values
    along = (gradient_MD * weights_MD.detach()).sum()
    (product_MD,) = torch.autograd.grad(along, weights_MD)
    return *values, product_MD
