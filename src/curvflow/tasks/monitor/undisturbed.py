"""Use of a training loop's module and random streams that leaves them as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Take a module in evaluation mode, and put back what the block changes.

    Modes of layers, the random streams of torch, NumPy and Python, and the switches of
    autograd and autocast are afterwards as they were. Gradients, parameters and buffers
    are not touched by the measures themselves, which work on copies.

    Args:
        module: whose layers are in evaluation mode within the block.

    Yields:
        Nothing.
    """
    devices = {p.device for p in module.parameters()}
    modes = [(layer, layer.training) for layer in module.modules()]
    indices = [d.index for d in devices if d.type == "cuda"]
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=indices))
        stack.enter_context(_other_streams())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in {d.type for d in devices if d.type != "meta"}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        try:
            for layer, _ in modes:
                # Not eval(), which a layer may have overridden.
                layer.training = False
            yield
        finally:
            for layer, mode in modes:
                layer.training = mode


@contextmanager
def _other_streams() -> Iterator[None]:
    # NumPy's global stream, for it is what a user's data or module may draw from.
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def undisturbed_loader(data: Any) -> Iterator[None]:
    """Put back the generators that a loader and its sampler draw from."""
    owners = [data, getattr(data, "sampler", None)]
    generators = [getattr(owner, "generator", None) for owner in owners]
    states = [(g, g.get_state()) for g in generators if g is not None]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def synchronize(module: nn.Module) -> None:
    """Wait for what the devices of a module are still computing, to read the time."""
    for device in {p.device for p in module.parameters()}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
