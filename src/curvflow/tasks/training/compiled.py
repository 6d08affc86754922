"""Derivatives of batch losses, compiled into a few kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad

from curvflow.errors import InputError
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.problems import Problem, read

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
