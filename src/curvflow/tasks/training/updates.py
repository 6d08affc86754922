"""Apply to each model of a batch its own learning rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from curvflow.schemas.rules import Rule


def hyper_parameters(rules: Sequence[Rule], like: Tensor) -> dict[str, Tensor]:
    """Stack the hyper-parameters of rules of one kind.

    Args:
        rules: one per model, M of them, of one kind.
        like: a tensor of the dtype and device wanted.

    Returns:
        Name to values (M, 1).
    """
    values = [rule.hyper() for rule in rules]
    return {name: like.new_tensor([[v[name]] for v in values]) for name in values[0]}


class _Group:
    """The models that one kind of rule trains, and its state."""

    def __init__(self, rules: Mapping[int, Rule], weights_MD: Tensor) -> None:
        numbers = list(rules)
        alone = len(numbers) == len(weights_MD)
        # On the device once: a list would be copied there at every step.
        index = torch.tensor(numbers, device=weights_MD.device)
        self.models: Any = slice(None) if alone else index
        name = next(iter(rules.values())).rule
        self.functions = import_module(f"curvflow.tasks.rules.{name}")
        self.hyper = hyper_parameters(list(rules.values()), weights_MD)
        self.state = self.functions.init(weights_MD[self.models], self.hyper)

    def step(self, gradient_MD: Tensor, weights_MD: Tensor) -> Tensor:
        new, self.state = self.functions.step(
            gradient_MD[self.models], self.state, weights_MD[self.models], self.hyper
        )
        stepped: Tensor = new
        return stepped


class Updates:
    """The learning rules of a batch of models with their states."""

    def __init__(self, rules: Sequence[Rule], weights_MD: Tensor) -> None:
        """Take the rule of each model and its initial weights."""
        kinds: dict[str, dict[int, Rule]] = {}
        for number, rule in enumerate(rules):
            kinds.setdefault(rule.rule, {})[number] = rule
        self._groups = [_Group(some, weights_MD) for some in kinds.values()]

    def step(self, gradient_MD: Tensor, weights_MD: Tensor) -> Tensor:
        """Return the weights after one step of every model's rule."""
        if len(self._groups) == 1:
            return self._groups[0].step(gradient_MD, weights_MD)
        stepped = torch.empty_like(weights_MD)
        for group in self._groups:
            stepped[group.models] = group.step(gradient_MD, weights_MD)
        return stepped
