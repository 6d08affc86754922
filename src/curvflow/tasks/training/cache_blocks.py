"""Blocks of models whose activations fit into the processor's caches, and of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.numerics.derivatives.passes import models_together, spans

# Activations of one pass on a CPU. Measured: beyond the allocator's threshold for
# mapped memory, 32 MB, page faults make a pass up to three times slower.
CPU_PASS_BYTES = 1 << 24

# The same on a GPU, where it only bounds the memory.
GPU_PASS_BYTES = 1 << 30

# Activations of one model's samples in one pass, where each takes as much as LARGE: a
# token's scores for a vocabulary of 50,000 take 200 kB.
ROWS_BYTES, LARGE = 1 << 28, 1 << 20


def rows_at_once(problem: Problem, item: int) -> int | None:
    """Return how many samples fit into one pass of one model.

    Args:
        problem: network and loss, which set the activations per sample.
        item: bytes of a number.

    Returns:
        The number, which depends on nothing else, so that sums keep their order; None
        where samples are small.
    """
    each = problem.network.width * item
    return None if each < LARGE else max(1, ROWS_BYTES // each)


def go_one_by_one(
    problem: Problem, samples: Samples, like: Tensor, *, is_compiled: bool = False
) -> bool:
    """Return whether models go one by one: few modules of the user's own fit a block.

    Args:
        problem: network and loss, which set the activations per sample.
        samples: of one pass.
        like: a tensor of the dtype and device of the computation.
        is_compiled: the function is compiled, for several models at once.
    """
    return like.device.type == "cpu" and _most(problem, samples, like, is_compiled) == 1


def _most(problem: Problem, samples: Samples, like: Tensor, is_compiled: bool) -> int:
    """Return how many models a block takes."""
    each = samples.count * problem.network.width * like.element_size()
    if like.device.type != "cpu":
        return GPU_PASS_BYTES // each
    has_plain_path = problem.network.takes_leaves and not is_compiled
    return models_together(CPU_PASS_BYTES // each, has_plain_path=has_plain_path)


def apply_in_blocks(
    function: Callable[[slice], tuple[Tensor, ...]],
    problem: Problem,
    models: slice,
    samples: Samples,
    like: Tensor,
    *,
    is_compiled: bool = False,
) -> tuple[Tensor, ...]:
    """Apply a function to blocks of models and concatenate the results.

    Modules of the user's own of which few fit into a block on a CPU go one by one.

    Args:
        function: from a slice of models to tensors whose leading dimension is the
            model.
        problem: network and loss, which set the activations per sample.
        models: slice of all models to compute.
        samples: samples of all models.
        like: a tensor of the dtype and device of the computation.
        is_compiled: the function is compiled, for several models at once.

    Returns:
        The tensors for all these models.
    """
    is_apart = go_one_by_one(problem, samples, like, is_compiled=is_compiled)
    most = _most(problem, samples, like, is_compiled)
    blocks = spans(models.stop - models.start, most, fewest=1 if is_apart else 2)
    parts = [
        function(slice(models.start + span.start, models.start + span.stop))
        for span in blocks
    ]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(several) for several in zip(*parts, strict=True))
