"""Arguments of a learning rule at each step: hyper-parameters, batch, random numbers.

Also the mean length of its steps, and the preconditioner that a rule reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from curvflow.schemas.rules import Rule
from curvflow.tasks.networks.problems import Problem, Samples

# From a shape to uniform numbers (M, *shape), each model's from its own stream.
Draw = Callable[[tuple[int, ...]], Tensor]


class Hyper(Mapping[str, Tensor]):
    """Hyper-parameters of the models of one group, (M, 1) each, by name.

    Attributes:
        rule: specification of the first model's rule; all make the same choices.
        like: a tensor of the dtype and device of the values.
    """

    def __init__(self, rules: Sequence[Rule], like: Tensor) -> None:
        """Stack the hyper-parameters of rules with equal choices.

        Args:
            rules: one per model, M of them.
            like: a tensor of the dtype and device of the values.
        """
        self.rule: Any = rules[0]
        self.like = like
        self._rules = rules
        values = [rule.hyper() for rule in rules]
        self._values = {n: like.new_tensor([[v[n]] for v in values]) for n in values[0]}
        # Known here, so that no step waits for the device to learn it.
        self._zeros = {n for n in values[0] if not any(v[n] for v in values)}
        self._within = {
            name: Hyper([getattr(rule, name) for rule in rules], like)
            for name, value in self.rule.choices().items()
            if isinstance(value, Rule)
        }

    def __getitem__(self, name: str) -> Tensor:
        """Return the values of one hyper-parameter, (M, 1)."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of hyper-parameters."""
        return len(self._values)

    def is_zero(self, name: str) -> bool:
        """Return whether a hyper-parameter is 0 of all models, before it is scaled."""
        return name in self._zeros

    def scaled(self, scale_M1: Tensor) -> Hyper:
        """Return the hyper-parameters with every `lr` multiplied, within rules too."""
        scaled = copy(self)
        scaled._values = {
            name: scale_M1 * value if name == "lr" else value
            for name, value in self._values.items()
        }
        scaled._within = {n: h.scaled(scale_M1) for n, h in self._within.items()}
        return scaled

    def only(self, row: int) -> Hyper:
        """Return the hyper-parameters of one model."""
        return Hyper([self._rules[row]], self.like)

    def within(self, name: str) -> Hyper:
        """Return the hyper-parameters of an inner rule, by the name of its field."""
        return self._within[name]


class Preconditioner(NamedTuple):
    """Preconditioner P of a rule: steps are -rate P^-1 times mean gradients.

    Attributes:
        numbers: diagonal of P, (M, D), or where P has blocks the rows of `flat_blocks`,
            (M, S); NaN before a step has determined them.
        rate: learning rate, (M, 1).
        bound: stability bound of rate times the largest eigenvalue of
            P^-1/2 H P^-1/2, (M, 1): above it steps grow on a quadratic with Hessian H.
    """

    numbers: Tensor
    rate: Tensor
    bound: Tensor


@dataclass(frozen=True)
class Step:
    """Position in training, batch, Hessian product and random numbers of one step.

    Attributes:
        epoch: the current epoch, from 0.
        count: steps taken before this one.
        begins_epoch: this is the first step of the epoch.
        ends_epoch: this is the last step of the epoch.
        problem: network and loss; parameters are in the order of its layout.
        statistics: of the networks, such as running means, before this step, (M, S).
        batch: the samples of this step, with a leading dimension M or 1.
        product: H w of the batch loss for the present weights w, (M, D), if the rule
            requests it by `product_from`; else None.
        draw: uniform numbers for the rule.
        dropout: from a slice of models to the uniform numbers of their dropout in this
            step's gradients, begun anew at each call.
        gradient_at: from other weights, (M, D), to the gradients of this step's batch
            loss there, with the same dropout; a batch norm's statistics stay.
    """

    epoch: int
    count: int
    begins_epoch: bool
    ends_epoch: bool
    problem: Problem
    statistics: Tensor
    batch: Samples
    product: Tensor | None
    draw: Draw
    dropout: Callable[[slice], Draw]
    gradient_at: Callable[[Tensor], Tensor]

    def per_tensor(self, reduce: str, values_MD: Tensor) -> Tensor:
        """Reduce values over each parameter tensor, and spread the result over it.

        Args:
            reduce: `amax`, `sum`, `mean` or another reduction of torch's tensors.
            values_MD: one value per parameter.

        Returns:
            The same shape, constant over each tensor of a model.
        """
        pieces = torch.split(values_MD, self.problem.network.layout.sizes, dim=1)
        spread = [
            getattr(piece, reduce)(dim=1, keepdim=True).expand_as(piece)
            for piece in pieces
        ]
        return torch.cat(spread, dim=1)


class StepNorms:
    """Mean over an epoch's steps of ||w' - w|| / lr, for M models.

    For sgd without momentum it is the mean norm of the batch gradients, for ngd the
    mean norm of the preconditioned gradients.
    """

    def __init__(self, like_MD: Tensor) -> None:
        """Begin an epoch; take weights of the shape and device of the models'."""
        self._sum_M = like_MD.new_zeros(len(like_MD), dtype=torch.float64)
        self._count = torch.zeros((), dtype=torch.int64)

    def begin(self) -> None:
        """Begin the next epoch."""
        self._sum_M = torch.zeros_like(self._sum_M)
        self._count = torch.zeros_like(self._count)

    def add(self, change_MD: Tensor, rate_M: Tensor) -> None:
        """Take one step: the change of the weights, and the learning rates."""
        lengths_M = change_MD.norm(dim=1).double()
        self._sum_M = self._sum_M + lengths_M / rate_M.to(self._sum_M)
        self._count = self._count + 1

    def mean(self) -> Tensor:
        """Return the mean of the steps so far, (M,); NaN before the first."""
        count = int(self._count)
        return self._sum_M / count if count else torch.full_like(self._sum_M, torch.nan)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sum and number of the steps so far."""
        return {"sum": self._sum_M, "count": self._count}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore an earlier sum and number."""
        self._sum_M, self._count = tensors["sum"], tensors["count"]
