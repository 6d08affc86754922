"""What a sampler is given at each step beside its state."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.chances import Chances
from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.steps import Steps


@dataclass
class Now:
    """Where a walk is.

    Attributes:
        posterior: what is sampled.
        steps: how.
        lr: step sizes, (C, 1).
        root: their square roots, (C, 1).
        noise: of this step, standard normal, (C, D).
        rows: samples of this step's batches, (C, B); None for all of the data.
        coins: of this step, uniform between 0 and 1, (C,).
        num_free: how many parameters move.
        is_adapting: whether what a method learns about the posterior may still change:
            in the burn-in, or throughout if there is none.
    """

    posterior: Posterior
    steps: Steps
    lr: Tensor = field(init=False)
    root: Tensor = field(init=False)
    noise: Tensor = field(init=False)
    rows: Tensor | None = field(init=False)
    coins: Tensor = field(init=False)
    num_free: int = field(init=False)
    is_adapting: bool = field(init=False)

    def __post_init__(self) -> None:
        """Count what moves and take memory."""
        centre_CD, free = self.posterior.centre, self.posterior.free
        self._memory_CD = torch.empty_like(centre_CD)
        self.num_free = centre_CD.shape[1] if free is None else int(free.sum())

    def walk_by(self, lr_C: Tensor) -> None:
        """Set the step sizes, (C,)."""
        self.lr = lr_C[:, None]
        self.root = self.lr.sqrt()

    def arrive(self, step: int, chances: Chances, at: int) -> None:
        """Go to a step, the `at`-th of its block."""
        self.noise, self.coins = chances.noise[:, at], chances.coins[:, at]
        self.rows = None if chances.rows is None else chances.rows[:, at]
        learning = self.steps.num_burnin_steps
        self.is_adapting = step < learning or learning == 0

    def gradients(self, weights_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) of the step's batch and their gradients (C, D)."""
        return self.posterior.losses.gradients(weights_CD, self.rows)

    def drift(self, weights_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) of the batch and the energy's gradient (C, D)."""
        losses_C, gradients_CD = self.gradients(weights_CD)
        return losses_C, self.drift_of(weights_CD, gradients_CD)

    def drift_of(self, weights_CD: Tensor, gradients_CD: Tensor) -> Tensor:
        """Return the energy's gradient (C, D) from that of the mean loss.

        It is the posterior's, in memory that the next call writes over.
        """
        posterior, drift_CD = self.posterior, self._memory_CD
        torch.sub(weights_CD, posterior.centre, out=drift_CD)
        drift_CD.mul_(posterior.localization[:, None])
        drift_CD.addcmul_(posterior.nbeta[:, None], gradients_CD)
        return drift_CD if posterior.free is None else drift_CD.mul_(posterior.free)

    def descend(self, by_CD: Tensor, drift_CD: Tensor) -> Tensor:
        """Add -(lr / 2) drift to `by_CD` in place and return it."""
        return by_CD.addcmul_(self.lr, drift_CD, value=-0.5)
