"""Causes of ill-defined curvature of a module, refused by name with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from curvflow.errors import InputError

Cause = Literal[
    "generator", "shuffle", "changing_data", "dropout", "batch_norm", "nondeterminism"
]
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def check(
    module: nn.Module,
    batches: Iterable[Any],
    compute: Callable[[Any], Tensor],
    allow: Collection[Cause],
) -> None:
    """Refuse what would make two equal products differ, or mix samples unasked.

    Args:
        module: as it will be called.
        batches: as they will be read.
        compute: outputs of a batch.
        allow: causes that are let through; of a generator there is no second reading,
            so it is refused all the same.

    Raises:
        InputError: `allow` names no cause, or a cause is found; it is named.
    """
    if unknown := set(allow) - set(get_args(Cause)):
        raise InputError(
            f"allow: expected some of {', '.join(get_args(Cause))}, got "
            f"{', '.join(sorted(unknown))}. Name the cause as the refusal does."
        )
    if iter(batches) is batches:
        raise InputError(
            "data (generator): expected batches that can be read again, got "
            f"{type(batches).__name__}, which ends after one reading. Pass a list or a "
            "DataLoader."
        )
    for cause, fault in _causes(module, batches, compute, allow):
        raise InputError(f"{fault} Or go on all the same: allow '{cause}'.")


def _causes(
    module: nn.Module,
    batches: Iterable[Any],
    compute: Callable[[Any], Tensor],
    allow: Collection[Cause],
) -> Iterator[tuple[Cause, str]]:
    looks: dict[Cause, Callable[[], str]] = {
        "shuffle": lambda: _shuffle(batches),
        "dropout": lambda: _dropout(module),
        "batch_norm": lambda: _batch_norm(module),
        "changing_data": lambda: _changing(batches, in_order="shuffle" in allow),
        "nondeterminism": lambda: _nondeterminism(batches, compute),
    }
    for cause, look in looks.items():
        if cause not in allow and (fault := look()):
            yield cause, fault


def _shuffle(batches: Iterable[Any]) -> str:
    sampler = _shuffler(batches)
    if sampler is None:
        return ""
    return (
        "data (shuffle): expected one order at every reading, got a DataLoader with a "
        f"{type(sampler).__name__}. Make it with shuffle=False."
    )


def _shuffler(batches: Iterable[Any]) -> object | None:
    """Return what draws a loader's order, or None."""
    if not isinstance(batches, DataLoader):
        return None
    inner = getattr(batches.batch_sampler, "sampler", batches.sampler)
    return inner if isinstance(inner, _SHUFFLING) else None


def _permutes(batches: Iterable[Any]) -> bool:
    """Return whether a loader reads the same samples each time, in another order."""
    sampler: Any = _shuffler(batches)
    loader = cast("DataLoader[Any]", batches)
    if sampler is None or loader.batch_size is None:
        return False
    if loader.drop_last and len(sampler) % loader.batch_size:
        return False
    if isinstance(sampler, RandomSampler):
        whole = len(cast("Any", sampler.data_source))
        return not sampler.replacement and sampler.num_samples == whole
    return isinstance(sampler, SubsetRandomSampler)


def _changing(batches: Iterable[Any], *, in_order: bool) -> str:
    def read() -> object:
        if in_order and _permutes(batches):
            return _first_rows(cast("DataLoader[Any]", batches))
        return next(iter(batches), None)

    first, second = (_tensors(read()) for _ in range(2))
    if len(first) == len(second) and all(map(_are_equal, first, second)):
        return ""
    return (
        "data (changing_data): expected the same first batch at every reading, got "
        "another at the second. Take away random augmentation and sampling."
    )


def _first_rows(loader: DataLoader[Any]) -> object:
    """Return a batch of the first samples of a loader that draws its order."""
    data: Any = loader.dataset
    rows = getattr(loader.sampler, "indices", range(len(data)))[: loader.batch_size]
    return loader.collate_fn([data[row] for row in rows])


def _are_equal(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    # NaN is no change; others refuse it.
    return bool(((first == second) | ((first != first) & (second != second))).all())


def _tensors(batch: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]


def _dropout(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if layer.training and _chance(layer) > 0:
            return (
                "module (dropout): expected the same outputs at every call, got "
                f"{_shown(name, layer)} in training. Call eval() on it, or set its "
                "probability to 0."
            )
    return ""


def _chance(layer: nn.Module) -> float:
    if isinstance(layer, _DropoutNd):
        return float(layer.p)
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return float(layer.dropout)
    return 0.0


def _batch_norm(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        mixes = layer.training or getattr(layer, "running_mean", None) is None
        if isinstance(layer, _BatchNorm) and mixes:
            return (
                "module (batch_norm): expected samples that do not meet, got "
                f"{_shown(name, layer)} with the statistics of each batch. Call eval() "
                "on it to take the running ones."
            )
    return ""


def _nondeterminism(batches: Iterable[Any], compute: Callable[[Any], Tensor]) -> str:
    batch = next(iter(batches), None)
    with torch.no_grad():
        first, second = compute(batch), compute(batch)
    if torch.allclose(first, second, rtol=1e-5, equal_nan=True):
        return ""
    return (
        "module (nondeterminism): expected equal outputs for equal inputs, got others "
        f"at the second call, by up to {float((first - second).abs().max()):.2g}. "
        "Remove what draws at random or keeps a state between calls."
    )


def _shown(name: str, layer: nn.Module) -> str:
    return f"{type(layer).__name__} at '{name}'" if name else type(layer).__name__
