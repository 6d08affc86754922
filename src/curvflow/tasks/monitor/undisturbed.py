"""Use of a training loop's module and random streams that leaves them as they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler


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
    """Put a loader back as it was, as if it had not been read.

    That is its generators, samplers and workers, and the generators that its data set
    draws from in this process.

    Args:
        data: read within the block.

    Yields:
        Nothing.
    """
    owners = [] if isinstance(data, tuple | Mapping) else _owners(data)
    puts = [put for owner in owners for put in _puts(vars(owner).values())]
    puts += list(_puts(_of_data_set(data)))
    before = [dict(vars(owner)) for owner in owners]
    for owner in owners:
        if isinstance(owner, DataLoader):  # else its workers would be those kept
            vars(owner)["_iterator"] = None
    try:
        yield
    finally:
        for put in puts:
            put()
        for owner, attributes in zip(owners, before, strict=True):
            # Not by setattr, which a loader refuses for some, nor emptied before, for
            # its threads may read them.
            vars(owner).update(attributes)
            for name in vars(owner).keys() - attributes.keys():
                del vars(owner)[name]


def _owners(data: Any) -> list[Any]:
    """Return a loader, and the samplers and loaders within it."""
    owners: list[Any] = []
    waiting = [data]
    while waiting:
        owner = waiting.pop()
        if hasattr(owner, "__dict__") and not any(owner is each for each in owners):
            owners.append(owner)
            named = vars(owner)
            # The last is accelerate's, which counts the loaders that are read.
            names = ("sampler", "batch_sampler", "gradient_state")
            waiting += [named.get(name) for name in names]
            waiting += [
                v for v in named.values() if isinstance(v, Sampler | DataLoader)
            ]
    return owners


def _of_data_set(data: Any) -> Iterator[Any]:
    """Yield the generators of a loader's data set, and of one within it."""
    sets: list[Any] = []
    data = getattr(data, "dataset", None)
    while data is not None and not any(data is each for each in sets):
        sets.append(data)
        values = _attributes(data).values()
        yield from (v for v in values if isinstance(v, _GENERATORS))
        data = _attributes(data).get("dataset")


def _attributes(owner: Any) -> Mapping[str, Any]:
    """Return the attributes of an object; none of a list, say."""
    attributes: Mapping[str, Any] = getattr(owner, "__dict__", {})
    return attributes


_GENERATORS = (
    torch.Generator,
    random.Random,
    np.random.Generator,
    np.random.RandomState,
)


def _puts(values: Iterable[Any]) -> Iterator[Callable[[], object]]:
    """Yield what puts the contents of values back."""
    for value in values:
        match value:
            case torch.Generator():
                yield partial(value.set_state, value.get_state())
            case random.Random():
                yield partial(value.setstate, value.getstate())
            case np.random.RandomState():
                yield partial(value.set_state, value.get_state())
            case np.random.Generator():
                bits = value.bit_generator
                yield partial(setattr, bits, "state", bits.state)
            case list():
                yield partial(value.__setitem__, slice(None), list(value))
            case dict() | set():
                yield partial(_refill, value, value.copy())


def _refill(kept: dict[Any, Any] | set[Any], content: Any) -> None:
    kept.clear()
    kept.update(content)


def synchronize(module: nn.Module) -> None:
    """Wait for what the devices of a module are still computing, to read the time."""
    for device in {p.device for p in module.parameters()}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
