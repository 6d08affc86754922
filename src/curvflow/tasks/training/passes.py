"""Passes over models that fit into the processor's caches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from curvflow.tasks.numerics.spans import spans
from curvflow.tasks.problems import Problem, Samples

# Activations of one pass on a CPU. Measured: beyond the allocator's threshold for
# mapped memory, 32 MB, page faults make a pass up to three times slower.
CPU_PASS_BYTES = 1 << 24

# The same on a GPU, only to bound its memory.
GPU_PASS_BYTES = 1 << 30


def in_passes(
    function: Callable[[Tensor, Samples], tuple[Tensor, Tensor]],
    problem: Problem,
    weights_MD: Tensor,
    samples: Samples,
) -> tuple[Tensor, Tensor]:
    """Apply a function to some models at a time and join what it returns.

    Args:
        function: from weights and samples of some models to two tensors whose leading
            dimension is the model.
        problem: tells the activations per sample.
        weights_MD: of all models.
        samples: of all models.

    Returns:
        The two tensors for all models.
    """
    models = len(weights_MD)
    each = samples.count * problem.network.width * weights_MD.element_size()
    most = CPU_PASS_BYTES if weights_MD.device.type == "cpu" else GPU_PASS_BYTES
    parts = [
        function(weights_MD[span], samples.models(span))
        for span in spans(models, most // each)
    ]
    if len(parts) == 1:
        return parts[0]
    first, second = zip(*parts, strict=True)
    return torch.cat(first), torch.cat(second)
