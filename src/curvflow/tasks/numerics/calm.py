"""A call of a module that leaves no trace in it, by routes with all derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    # torch's own flags() warns where there is no Intel GPU (2.13).
    mkldnn: Any = torch.backends.mkldnn
    (before, *_) = mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    try:
        yield
    finally:
        mkldnn.set_flags(_enabled=before, _fp32_precision=None)


@contextmanager
def calm(module: nn.Module, seed: int | None) -> Iterator[None]:
    """Keep a module from changing its statistics, and its draws from changing.

    Args:
        module: called within the block.
        seed: of what is drawn within the block; None if nothing is.

    Yields:
        Nothing.
    """
    layers = list(module.modules())
    tracking = [
        layer
        for layer in layers
        if isinstance(layer, _NormBase) and layer.training and layer.track_running_stats
    ]
    with ExitStack() as stack:
        if any(isinstance(layer, nn.RNNBase) for layer in layers):
            # Fused kernels have no second or no forward derivatives.
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(_without_mkldnn())
        if seed is not None:
            stack.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        for layer in tracking:
            layer.track_running_stats = False
            stack.callback(setattr, layer, "track_running_stats", True)
        yield
