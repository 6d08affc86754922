"""What a sampler is given at each step beside its state."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.random_numbers import Supply


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
        push: what a step of Langevin takes of the mean loss's gradient, (C, 1).
        pull: how far it goes back to the centre, as a share of the way, (C, 1).
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
    push: Tensor = field(init=False)
    pull: Tensor = field(init=False)
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
        self.push = self.lr * self.posterior.nbeta[:, None] / -2
        self.pull = self.lr * self.posterior.localization[:, None] / 2

    def arrive(self, step: int, supply: Supply) -> None:
        """Go to a step."""
        self.noise = supply.noise(step)
        self.rows, self.coins = supply.batch(step)
        learning = self.steps.num_burnin_steps
        self.is_adapting = step < learning or learning == 0

    def gradients(self, weights_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) of the step's batch and their gradients (C, D).

        The gradients are in memory that the next call writes over.
        """
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

    def langevin(self, weights_CD: Tensor) -> Tensor:
        """Take a step of Langevin dynamics in place.

        The way to the centre, the gradient and the noise are added one after another:
        no fewer passages over the weights will do.

        Args:
            weights_CD: where the step begins; what it leaves is written over them.

        Returns:
            The mean losses of the batch where it began, (C,).
        """
        losses_C, gradients_CD = self.gradients(weights_CD)
        if self.posterior.free is not None:
            gradients_CD.mul_(self.posterior.free)
        weights_CD.lerp_(self.posterior.centre, self.pull)
        weights_CD.addcmul_(self.push, gradients_CD).addcmul_(self.root, self.noise)
        return losses_C

    def descend(self, by_CD: Tensor, drift_CD: Tensor) -> Tensor:
        """Add -(lr / 2) drift to `by_CD` in place and return it."""
        return by_CD.addcmul_(self.lr, drift_CD, value=-0.5)
