"""Temperature, position and random numbers that a sampler is given at a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.random_numbers import RandomNumbers


@dataclass
class StepContext:
    """All that a step of a sampler depends on, except the state of its chains.

    Attributes:
        posterior: what is sampled.
        steps: settings of the sampler.
        lr: step sizes, (C, 1).
        root: their square roots, (C, 1).
        noise: of this step, standard normal, (C, D).
        rows: samples of this step's batches, (C, B); None for all of the data.
        acceptance_draws: of this step, uniform between 0 and 1, (C,).
        num_free: number of parameters that move.
        push: factor of the mean loss's gradient in a Langevin step, (C, 1).
        pull: share of the way back to the centre that such a step goes, (C, 1).
        is_adapting: whether a method may still adapt to the posterior: in the burn-in,
            or throughout if there is none.
    """

    posterior: Posterior
    steps: Steps
    lr: Tensor = field(init=False)
    root: Tensor = field(init=False)
    noise: Tensor = field(init=False)
    rows: Tensor | None = field(init=False)
    acceptance_draws: Tensor = field(init=False)
    num_free: int = field(init=False)
    push: Tensor = field(init=False)
    pull: Tensor = field(init=False)
    is_adapting: bool = field(init=False)

    def __post_init__(self) -> None:
        """Count the free parameters and allocate memory."""
        centre_CD, free = self.posterior.centre, self.posterior.free
        self._memory_CD = torch.empty_like(centre_CD)
        self.num_free = centre_CD.shape[1] if free is None else int(free.sum())

    def set_lr(self, lr_C: Tensor) -> None:
        """Set the step sizes, (C,)."""
        self.lr = lr_C[:, None]
        self.root = self.lr.sqrt()
        self.push = self.lr * self.posterior.nbeta[:, None] / -2
        self.pull = self.lr * self.posterior.localization[:, None] / 2

    def advance_to(self, step: int, numbers: RandomNumbers) -> None:
        """Take the random numbers of a step."""
        self.noise = numbers.noise(step)
        self.rows, self.acceptance_draws = numbers.batch(step)
        burnin = self.steps.num_burnin_steps
        self.is_adapting = step < burnin or burnin == 0

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

    def langevin_step(self, weights_CD: Tensor) -> Tensor:
        """Take a step of Langevin dynamics in place.

        The pull to the centre, the gradient and the noise are added one after another,
        which is the smallest number of passes over the weights.

        Args:
            weights_CD: positions before the step; overwritten by those after it.

        Returns:
            The mean losses of the batch before the step, (C,).
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
