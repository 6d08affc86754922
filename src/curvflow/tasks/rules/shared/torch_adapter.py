"""One step of an optimiser of PyTorch as a function of stacked models and a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.rules.torch_optimizer import TorchOptimizer
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.rules.shared.torch_optimizers import (
    Entry,
    entries,
    give_back,
    kept,
    made,
    numbers,
    stepped,
)

# What is kept, in the order of `Adapter.entries`; the first dimension is the model.
State = tuple[Tensor | None, ...]

# RAdam changes its course after five steps.
TRIAL_MODELS, TRIAL_STEPS = 3, 8
TRIAL_SIZES = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Adapter:
    """Use of an optimiser on stacked models.

    Attributes:
        rule: names it.
        layout: of the tensors that it sees.
        entries: what it keeps.
        shared: of each entry whether one value serves all models; None if each model
            has a separate optimiser.
    """

    rule: TorchOptimizer
    layout: Layout
    entries: tuple[Entry, ...]
    shared: tuple[bool, ...] | None = None

    @property
    def is_stacked(self) -> bool:
        """True if one optimiser steps all models."""
        return self.shared is not None

    def step(
        self, gradient_MD: Tensor, state: State | None, weights_MD: Tensor, lr: float
    ) -> tuple[Tensor, State]:
        """Take one step.

        Args:
            gradient_MD: of the loss.
            state: after the step before; None at the first.
            weights_MD: present weights.
            lr: learning rate.

        Returns:
            New weights and state.
        """
        gradients, tensors = map(self.layout.unflatten, (gradient_MD, weights_MD))
        if self.shared is not None:
            held = None if state is None else _given(state, self.shared)
            new, values = self.step_one(gradients, held, tensors, lr)
            kept = _taken(values, self.shared, len(weights_MD))
            return torch.cat([tensor.flatten(1) for tensor in new], dim=1), kept
        steps = [
            self.step_one(
                [tensor[row] for tensor in gradients],
                None if state is None else [_row(leaf, row) for leaf in state],
                [tensor[row] for tensor in tensors],
                lr,
            )
            for row in range(len(weights_MD))
        ]
        rows = [torch.cat([tensor.flatten() for tensor in new]) for new, _ in steps]
        columns = zip(*(values for _, values in steps), strict=True)
        return torch.stack(rows), tuple(map(_column, columns))

    def step_one(
        self,
        gradients: Sequence[Tensor],
        held: Sequence[Tensor | None] | None,
        tensors: Sequence[Tensor],
        lr: float,
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Take one step of one optimiser.

        Args:
            gradients: by its tensors.
            held: what it kept after the step before; None at the first.
            tensors: that it steps.
            lr: learning rate.

        Returns:
            The new tensors, and what it keeps.
        """
        path, optimizer = self.rule.optimizer, made(self.rule, tensors, lr)
        if held is not None:
            give_back(optimizer, self.entries, held)
        new = stepped(optimizer, gradients, path)
        return new, kept(optimizer, self.entries, path)


def _row(leaf: Tensor | None, row: int) -> Tensor | None:
    return None if leaf is None else leaf[row]


def _column(values: Sequence[Tensor | None]) -> Tensor | None:
    tensors = [value for value in values if value is not None]
    return torch.stack(tensors) if tensors else None


def _given(state: State, shared: Sequence[bool]) -> list[Tensor | None]:
    pairs = zip(state, shared, strict=True)
    return [_row(leaf, 0) if is_one else leaf for leaf, is_one in pairs]


def _taken(
    values: Sequence[Tensor | None], shared: Sequence[bool], models: int
) -> State:
    return tuple(
        value if value is None or not is_one else value.expand(models, *value.shape)
        for value, is_one in zip(values, shared, strict=True)
    )


@lru_cache(maxsize=64)
def adapter(text: str, layout: Layout) -> Adapter:
    """Try an optimiser, and find out how it can be used.

    Args:
        text: the rule as JSON.
        layout: of the network's tensors.

    Returns:
        How it is used: stacked if three models of unlike gradients step together as
        they do alone.

    Raises:
        InputError: it cannot be imported or made, does not step on dense gradients,
            keeps what cannot be stored, or draws random numbers.
    """
    rule = TorchOptimizer.model_validate_json(text)
    shape = (TRIAL_MODELS, layout.size)
    start_MD = torch.randn(shape, generator=stream(0, "trial"), dtype=torch.float64)
    start_MD[:, 0] = torch.tensor(TRIAL_SIZES)
    with torch.random.fork_rng(devices=[]):
        wanted_MD, known = _uninterrupted(rule, layout, start_MD, seed=0)
        again_1D, _ = _uninterrupted(rule, layout, start_MD[:1], seed=1)
        apart = Adapter(rule, layout, known)
        is_known = _alike(wanted_MD[:1], again_1D)
        if not (is_known and _alike(wanted_MD, _course(apart, start_MD))):
            raise InputError(
                f"optimizer: expected {rule.optimizer} to step by its state and the "
                "gradient alone, got steps that depend on more, such as random numbers "
                "or a rate of its own. Choose another."
            )
        return _stacked(apart, start_MD, wanted_MD) or apart


def _gradient(start_MD: Tensor, count: int) -> Tensor:
    # Of unlike sizes, so that a norm over all models would show.
    sizes_M1 = start_MD[:, :1].abs()
    return sizes_M1 * torch.sin((count + 1) * start_MD)


def _uninterrupted(
    rule: TorchOptimizer, layout: Layout, start_MD: Tensor, seed: int
) -> tuple[Tensor, tuple[Entry, ...]]:
    """Step as everybody does, each model by an optimiser that is kept alive."""
    torch.manual_seed(seed)
    path, rows, known = rule.optimizer, [], []
    for start_1D in torch.split(start_MD, 1):
        optimizer = made(rule, [t[0] for t in layout.unflatten(start_1D)], rule.lr)
        before = numbers(optimizer)
        for count in range(TRIAL_STEPS):
            pieces = layout.unflatten(_gradient(start_1D, count))
            new = stepped(optimizer, [piece[0] for piece in pieces], path)
        rows.append(torch.cat([tensor.flatten() for tensor in new]))
        after = numbers(optimizer)
        group = sorted(n for n in after if n != "lr" and after[n] != before.get(n))
        known.append(entries(optimizer, path, group))
    return torch.stack(rows), max(known, key=len)


def _course(how: Adapter, start_MD: Tensor) -> Tensor:
    weights_MD, state = start_MD, None
    for count in range(TRIAL_STEPS):
        gradient_MD = _gradient(start_MD, count)
        weights_MD, state = how.step(gradient_MD, state, weights_MD, how.rule.lr)
    return weights_MD


def _stacked(apart: Adapter, start_MD: Tensor, wanted_MD: Tensor) -> Adapter | None:
    """Return one optimiser of all models, if it leads where they are wanted."""
    gradient_MD = _gradient(start_MD, 0)
    tensors, gradients = map(apart.layout.unflatten, (start_MD, gradient_MD))
    try:
        _, values = apart.step_one(gradients, None, tensors, apart.rule.lr)
        shared = [v is not None and v.shape[:1] != (TRIAL_MODELS,) for v in values]
        together = replace(apart, shared=tuple(shared))
        found_MD = _course(together, start_MD)
    except InputError:  # as of an optimiser of matrices alone
        return None
    return together if _alike(found_MD, wanted_MD) else None


def _alike(first: Tensor, other: Tensor) -> bool:
    return torch.allclose(first, other, rtol=1e-10, atol=1e-12, equal_nan=True)
