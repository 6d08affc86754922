"""Apply to each model of a batch its own learning rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from curvflow.schemas.rules import Rule
from curvflow.tasks.training.state import RuleState, leaves, with_leaves


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
        self.numbers = list(rules)
        alone = len(self.numbers) == len(weights_MD)
        # On the device once: a list would be copied there at every step.
        index = torch.tensor(self.numbers, device=weights_MD.device)
        self.models: Any = slice(None) if alone else index
        name = next(iter(rules.values())).rule
        self.functions = import_module(f"curvflow.tasks.rules.{name}")
        self.hyper = hyper_parameters(list(rules.values()), weights_MD)
        self.state: RuleState = self.init(weights_MD)

    def init(self, weights_MD: Tensor) -> RuleState:
        state: RuleState = self.functions.init(weights_MD[self.models], self.hyper)
        return state

    def step(self, gradient_MD: Tensor, weights_MD: Tensor) -> Tensor:
        new, self.state = self.functions.step(
            gradient_MD[self.models], self.state, weights_MD[self.models], self.hyper
        )
        stepped: Tensor = new
        return stepped

    def own(self, weights_MD: Tensor) -> Iterator[tuple[int, list[Tensor | None]]]:
        """Yield each model, and what its rule begins with when it trains alone.

        In a group a rule may keep for all what only some of its models need.
        """
        for row, model in enumerate(self.numbers):
            hyper = {name: values[row : row + 1] for name, values in self.hyper.items()}
            alone = self.functions.init(weights_MD[model : model + 1], hyper)
            yield model, leaves(alone)

    def vectors(self, weights_MD: Tensor) -> Iterator[tuple[int, Tensor]]:
        now = [None if leaf is None else leaf.cpu() for leaf in leaves(self.state)]
        for row, (model, own) in enumerate(self.own(weights_MD)):
            parts = [torch.zeros(0, dtype=torch.float64)]
            for leaf, needed in zip(now, own, strict=True):
                if leaf is not None and needed is not None:
                    parts.append(leaf[row].double().flatten())
            yield model, torch.cat(parts)

    def fits(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> bool:
        return all(
            len(vectors[model]) == sum(0 if one is None else one.numel() for one in own)
            for model, own in self.own(weights_MD)
        )

    def take(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> None:
        begun = self.init(weights_MD)
        new = [None if leaf is None else leaf.clone() for leaf in leaves(begun)]
        for row, (model, own) in enumerate(self.own(weights_MD)):
            start = 0
            for leaf, needed in zip(new, own, strict=True):
                if leaf is not None and needed is not None:
                    end = start + needed.numel()
                    leaf[row] = vectors[model][start:end].view(needed.shape[1:])
                    start = end
        self.state = with_leaves(begun, iter(new))


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

    def vectors(self, weights_MD: Tensor) -> list[Tensor]:
        """Return what each model's rule keeps for it, flattened, float64 on the CPU.

        Empty for a model whose rule would keep nothing, were it alone.

        Args:
            weights_MD: present weights.
        """
        found = dict(
            pair for group in self._groups for pair in group.vectors(weights_MD)
        )
        return [found[model] for model in range(len(weights_MD))]

    def take(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> bool:
        """Go on from the state that vectors hold, if they are as long as they must be.

        Args:
            vectors: as `vectors` returns them.
            weights_MD: weights to go on from.

        Returns:
            Whether they fit; if not, nothing is changed.
        """
        is_fit = all(group.fits(vectors, weights_MD) for group in self._groups)
        for group in self._groups if is_fit else ():
            group.take(vectors, weights_MD)
        return is_fit

    def tensors(self) -> dict[str, Tensor]:
        """Return every quantity of every rule's state."""
        found = self._leaves()
        return {name: leaf for name, leaf in found.items() if leaf is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to other states of the rules."""
        new = (tensors.get(name) for name in self._leaves())
        for group in self._groups:
            group.state = with_leaves(group.state, new)

    def _leaves(self) -> dict[str, Tensor | None]:
        return {
            f"{number}.{place}": leaf
            for number, group in enumerate(self._groups)
            for place, leaf in enumerate(leaves(group.state))
        }
