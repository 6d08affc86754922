"""Learning rules of a batch of models: their steps, schedules and states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.schemas.keys import sha256
from curvflow.schemas.kinds.shared.trained import RULES_RECORD
from curvflow.schemas.rules import Position, Rule
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import functions_of
from curvflow.tasks.training.state import RuleState, leaves, with_leaves
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step

# From the models of a group, as an index, to the context of their step.
StepOf = Callable[[Any], Step]


def group_key(rule: Rule) -> tuple[float, str, str]:
    """Return a sorting key that is equal for rules that share a step.

    Rules that need products with the Hessian come last, and those that need them first
    come very last, so that in every epoch the last models of the batch are those that
    need them.

    Args:
        rule: rule of one model.

    Returns:
        The key.
    """
    since = rule.product_from()
    return -float("inf" if since is None else since), rule.rule, _choices(rule)


def _choices(rule: Rule) -> str:
    return rule.rule + sha256(
        {
            name: _choices(value) if isinstance(value, Rule) else str(value)
            for name, value in rule.choices().items()
        }
    )


class _Group:
    """The models of one kind of rule, and the state of the rule."""

    def __init__(
        self, rules: Mapping[int, Rule], weights_MD: Tensor, problem: Problem
    ) -> None:
        self.numbers = list(rules)
        self.rules = list(rules.values())
        self.models = _index(self.numbers, weights_MD.device)
        self.functions = functions_of(self.rules[0])
        self.hyper = self.scaled_hyper = Hyper(self.rules, weights_MD)
        self.has_schedule = any(rule.schedule for rule in self.rules)
        self.by_step = any(r.schedule and r.schedule.by_step for r in self.rules)
        self.clip_M1 = _clips(self.rules, weights_MD)
        self.problem = problem
        self.state: RuleState = self.init(weights_MD)

    def init(self, weights_MD: Tensor) -> RuleState:
        begun: RuleState = self.functions.init(
            weights_MD[self.models], self.hyper, self.problem
        )
        return begun

    def set_rates(self, at: Position) -> None:
        if self.has_schedule:
            scale_M = _scales(self.rules, at).to(self.hyper.like)
            self.scaled_hyper = self.hyper.scaled(scale_M.unsqueeze(1))

    def clipped(self, gradient_MD: Tensor) -> Tensor:
        """Shorten gradients that are too long; also those at a rule's other weights."""
        # Pascanu, Mikolov and Bengio (2013), arXiv:1211.5063, Algorithm 1, with 1e-6
        # beside the norm as in torch's clip_grad_norm_.
        if self.clip_M1 is None:
            return gradient_MD
        norm_M1 = torch.linalg.vector_norm(gradient_MD, dim=1, keepdim=True)
        share_M1 = torch.clamp(self.clip_M1 / (norm_M1 + 1e-6), max=1.0)
        return gradient_MD * share_M1

    def step(self, gradient_MD: Tensor, weights_MD: Tensor, step: Step) -> Tensor:
        if self.clip_M1 is not None:
            gradient_at = step.gradient_at
            step = replace(step, gradient_at=lambda w: self.clipped(gradient_at(w)))
        new, self.state = self.functions.step(
            self.clipped(gradient_MD[self.models]),
            self.state,
            weights_MD[self.models],
            self.scaled_hyper,
            step,
        )
        stepped: Tensor = new
        return stepped

    @property
    def is_averaged(self) -> bool:
        return hasattr(self.functions, "evaluated")

    def evaluated(self, weights_MD: Tensor) -> Tensor:
        averaged_MD: Tensor = weights_MD[self.models]
        if self.is_averaged:
            averaged_MD = self.functions.evaluated(averaged_MD, self.state, self.hyper)
        return averaged_MD

    def chosen(self) -> tuple[Tensor, Tensor] | None:
        """Return learning rates and momenta if the rule chooses them itself."""
        if not hasattr(self.functions, "rates"):
            return None
        rate_M1, momentum_M1 = self.functions.rates(self.state, self.scaled_hyper)
        return rate_M1.squeeze(1), momentum_M1.squeeze(1)

    def recorded(self) -> Mapping[str, Tensor]:
        """Return the numbers that the rule records, (M,) each, by name."""
        if not self.rules[0].records:
            return {}
        values = self.functions.recorded(self.state, self.scaled_hyper)
        return {name: number_M1.squeeze(1) for name, number_M1 in values.items()}

    def preconditioner(self, weights_MD: Tensor) -> Preconditioner:
        own_MD = weights_MD[self.models]
        if hasattr(self.functions, "preconditioner"):
            given = (self.problem,) if self.rules[0].has_blocks else ()
            preconditioner: Preconditioner = self.functions.preconditioner(
                self.state, own_MD, self.scaled_hyper, *given
            )
            return preconditioner
        nothing_M1 = own_MD.new_full((len(own_MD), 1), torch.nan)
        return Preconditioner(nothing_M1.expand_as(own_MD), nothing_M1, nothing_M1)

    def watch(self, weights_MD: Tensor, loss_M: Tensor) -> None:
        if self.rules[0].watches:
            self.state = self.functions.watch(
                weights_MD[self.models], self.state, loss_M[self.models], self.hyper
            )

    def initial_leaves(
        self, weights_MD: Tensor
    ) -> Iterator[tuple[int, list[Tensor | None]]]:
        """Yield each model and the initial state of its rule when it trains alone.

        In a group, a rule may keep for all models a state that only a few need. Its
        form alone counts, which neighbours of equal rules share.
        """
        initial: list[Tensor | None] = []
        for row, model in enumerate(self.numbers):
            if not row or self.rules[row] != self.rules[row - 1]:
                own_MD = weights_MD[model : model + 1]
                alone = self.functions.init(own_MD, self.hyper.only(row), self.problem)
                initial = leaves(alone)
            yield model, initial

    def vectors(self, weights_MD: Tensor) -> Iterator[tuple[int, Tensor]]:
        leaves_now = [
            None if leaf is None else leaf.cpu() for leaf in leaves(self.state)
        ]
        for row, (model, initial) in enumerate(self.initial_leaves(weights_MD)):
            parts = [torch.zeros(0, dtype=torch.float64)]
            for leaf, needed in zip(leaves_now, initial, strict=True):
                if leaf is not None and needed is not None:
                    parts.append(leaf[row].double().flatten())
            if self.is_averaged:
                parts.append(weights_MD[model].double().cpu())
            yield model, torch.cat(parts)

    def fits(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> bool:
        iterate = weights_MD.shape[1] if self.is_averaged else 0
        return all(
            len(vectors[model])
            == iterate + sum(0 if leaf is None else leaf.numel() for leaf in initial)
            for model, initial in self.initial_leaves(weights_MD)
        )

    def take(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> Tensor:
        begun = self.init(weights_MD)
        new = [None if leaf is None else leaf.clone() for leaf in leaves(begun)]
        weights_MD = weights_MD.clone()
        for row, (model, initial) in enumerate(self.initial_leaves(weights_MD)):
            start = 0
            for leaf, needed in zip(new, initial, strict=True):
                if leaf is not None and needed is not None:
                    end = start + needed.numel()
                    leaf[row] = vectors[model][start:end].view(needed.shape[1:])
                    start = end
            if self.is_averaged:
                weights_MD[model] = vectors[model][start:].to(weights_MD)
        self.state = with_leaves(begun, iter(new))
        return weights_MD


def _scales(rules: Sequence[Rule], at: Position) -> Tensor:
    """Return the schedules' factors of the rates, (M,), float64 on the CPU."""
    scales = [rule.schedule.scale(at) if rule.schedule else 1.0 for rule in rules]
    return torch.tensor(scales, dtype=torch.float64)


def _clips(rules: Sequence[Rule], like: Tensor) -> Tensor | None:
    """Return the largest norms of gradients, (M, 1); None if no rule has one."""
    clips = [rule.clip_norm for rule in rules]
    if all(clip is None for clip in clips):
        return None
    return like.new_tensor([[torch.inf if c is None else c] for c in clips])


def _index(numbers: Sequence[int], device: torch.device) -> Any:
    """Return an index of models, a slice if they are consecutive."""
    first, last = numbers[0], numbers[-1]
    if list(numbers) == list(range(first, last + 1)):
        return slice(first, last + 1)
    # On the device once: a list would be copied there at every step.
    return torch.tensor(numbers, device=device)


class Updates:
    """The learning rules of a batch of models with their states.

    Attributes:
        watches: a rule reads the validation loss of each epoch.
        preconditioner_sizes: of each model the numbers of its preconditioner, once
            `preconditioners` has found them.
    """

    def __init__(
        self, rules: Sequence[Rule], weights_MD: Tensor, problem: Problem
    ) -> None:
        """Take the rule of each model, the initial parameters, and the problem."""
        self._rules = rules
        self._since = [rule.product_from() for rule in rules]
        self._rates_M = torch.tensor(
            [rule.base_lr for rule in rules], dtype=torch.float64
        )
        self.watches = any(rule.watches for rule in rules)
        kinds: dict[tuple[float, str, str], dict[int, Rule]] = {}
        for number, rule in enumerate(rules):
            kinds.setdefault(group_key(rule), {})[number] = rule
        self._groups = [_Group(group, weights_MD, problem) for group in kinds.values()]
        self.preconditioner_sizes: dict[int, int] = {}

    @property
    def averaged(self) -> list[bool]:
        """Return for each model True if its result is not the present weights."""
        averaged = {n for g in self._groups if g.is_averaged for n in g.numbers}
        return [model in averaged for model in range(len(self._rules))]

    @property
    def notes(self) -> list[str]:
        """Return the lines that rules show before training begins."""
        groups = [g for g in self._groups if hasattr(g.functions, "notice")]
        lines = [group.functions.notice(group.hyper, group.problem) for group in groups]
        return list(dict.fromkeys(filter(None, lines)))

    def wants_product(self, epoch: int) -> list[bool]:
        """Return for each model True if its rule needs H w in an epoch."""
        return [first is not None and epoch >= first for first in self._since]

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Set the learning rates by their schedules.

        Args:
            epoch: the epoch that begins, from 0.
            epochs: number of epochs of the training.
        """
        for group in self._groups:
            group.set_rates(Position(epoch, epochs))

    def begin_step(self, at: Position) -> None:
        """Set the learning rates that schedules change within an epoch."""
        for group in self._groups:
            if group.by_step:
                group.set_rates(at)

    def rates(self, at: Position) -> tuple[Tensor, Tensor]:
        """Return the learning rates and momenta of a step, (M,) each, on the CPU.

        Args:
            at: position in the training.

        Returns:
            Both; the momentum is NaN for rules that do not choose it.
        """
        rates_M = self._rates_M * _scales(self._rules, at)
        momenta_M = torch.full_like(rates_M, torch.nan)
        for group in self._groups:
            if chosen := group.chosen():
                rates_M[group.numbers] = chosen[0].to(rates_M)
                momenta_M[group.numbers] = chosen[1].to(rates_M)
        return rates_M, momenta_M

    def recorded(self) -> dict[str, Tensor]:
        """Return the numbers that rules record, (M,) each; NaN where one has none."""
        nothing_M = torch.full_like(self._rates_M, torch.nan)
        numbers = {name: nothing_M.clone() for name in RULES_RECORD}
        for group in self._groups:
            for name, number_M in group.recorded().items():
                numbers[name][group.numbers] = number_M.to(nothing_M)
        return numbers

    def preconditioners(self, weights_MD: Tensor) -> Preconditioner:
        """Return each model's preconditioner; NaN where the rule does not report it.

        Rows of models that have fewer numbers than others end with NaN.
        """
        parts = [group.preconditioner(weights_MD) for group in self._groups]
        numbers, rates, bounds = zip(*parts, strict=True)
        width = max(each.shape[1] for each in numbers)
        for group, each in zip(self._groups, numbers, strict=True):
            sizes = dict.fromkeys(group.numbers, each.shape[1])
            self.preconditioner_sizes |= sizes
        wide = [F.pad(n, (0, width - n.shape[1]), value=torch.nan) for n in numbers]
        dtype = reduce(torch.promote_types, (each.dtype for each in numbers))
        like_MS = weights_MD.new_empty(len(weights_MD), width, dtype=dtype)
        return Preconditioner(
            self._joined([each.to(dtype) for each in wide], like_MS),
            self._joined(rates, weights_MD[:, :1]),
            self._joined(bounds, weights_MD[:, :1]),
        )

    def scales(self, weights_MD: Tensor) -> Tensor:
        """Return each model's preconditioner, its rate and its bound, (M, S + 2)."""
        parts = self.preconditioners(weights_MD)
        return torch.cat([part.to(parts.numbers) for part in parts], dim=1)

    def step(self, gradient_MD: Tensor, weights_MD: Tensor, step_of: StepOf) -> Tensor:
        """Return the weights after one step of every model's rule.

        Args:
            gradient_MD: gradients of the batch loss.
            weights_MD: present weights.
            step_of: from the models of a group to the context of their step.

        Returns:
            The new weights.
        """
        steps = [
            group.step(gradient_MD, weights_MD, step_of(group.models))
            for group in self._groups
        ]
        return self._joined(steps, weights_MD)

    def evaluated(self, weights_MD: Tensor) -> Tensor:
        """Return the weights of the result, which a rule may average."""
        if not any(group.is_averaged for group in self._groups):
            return weights_MD
        return self._joined([g.evaluated(weights_MD) for g in self._groups], weights_MD)

    def watch(self, weights_MD: Tensor, loss_M: Tensor) -> None:
        """Give the rules the validation loss of the epoch just completed."""
        for group in self._groups:
            group.watch(weights_MD, loss_M)

    def _joined(self, parts: Sequence[Tensor], like_MD: Tensor) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(group.models, slice) for group in self._groups):
            order = sorted(range(len(parts)), key=lambda n: self._groups[n].numbers[0])
            return torch.cat([parts[n] for n in order])
        whole_MD = torch.empty_like(like_MD)
        for group, part in zip(self._groups, parts, strict=True):
            whole_MD[group.models] = part
        return whole_MD

    def vectors(self, weights_MD: Tensor) -> list[Tensor]:
        """Return the state of each model's rule, flattened, float64 on the CPU.

        Empty for a model whose rule would have no state if it trained alone. If a rule
        averages weights for its result, the present weights come last.

        Args:
            weights_MD: present weights.
        """
        vectors = dict(
            pair for group in self._groups for pair in group.vectors(weights_MD)
        )
        return [vectors[model] for model in range(len(weights_MD))]

    def take(self, vectors: Sequence[Tensor], weights_MD: Tensor) -> Tensor | None:
        """Restore the states of the rules from vectors if their lengths fit.

        Args:
            vectors: states as `vectors` returns them.
            weights_MD: weights stored with them.

        Returns:
            Weights to resume from; None, and no change, if the vectors do not fit.
        """
        if not all(group.fits(vectors, weights_MD) for group in self._groups):
            return None
        for group in self._groups:
            weights_MD = group.take(vectors, weights_MD)
        return weights_MD

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the rules' states."""
        tensors = self._leaves()
        return {name: leaf for name, leaf in tensors.items() if leaf is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the states of the rules."""
        new = (tensors.get(name) for name in self._leaves())
        for group in self._groups:
            group.state = with_leaves(group.state, new)

    def _leaves(self) -> dict[str, Tensor | None]:
        return {
            f"{number}.{place}": leaf
            for number, group in enumerate(self._groups)
            for place, leaf in enumerate(leaves(group.state))
        }
