"""Localised tempered posteriors, their losses, and the settings of a sampler.

Letters in addition to those of the package: C chains of all targets; K draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from curvflow.tasks.numerics.sampling.whitening import BlockWhitening, Whitening


class ChainLosses(Protocol):
    """Mean losses of chains, over shared data or over those of each."""

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        ...

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        ...

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: positions of the chains.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        ...


class Observables(Protocol):
    """Further quantities of chains, which are recorded at the draws."""

    @property
    def passes(self) -> float:
        """Work of one evaluation, in gradients of the mean loss over all the data."""
        ...

    def values(self, weights_CD: Tensor) -> Tensor:
        """Return the quantities of each chain, (C, O).

        Args:
            weights_CD: positions of the chains.
        """
        ...


class CountedLosses:
    """Chain losses that count the work done, per chain.

    Attributes:
        passes: in gradients of the mean loss over all the data; a loss alone is a
            third of one.
    """

    def __init__(self, losses: ChainLosses) -> None:
        """Count the work of `losses` from nothing."""
        self._losses = losses
        self.passes = 0.0

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        return self._losses.num_samples

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,)."""
        self.passes += self._share(rows_CB) / 3
        return self._losses.values(weights_CD, rows_CB)

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D)."""
        self.passes += self._share(rows_CB)
        return self._losses.gradients(weights_CD, rows_CB)

    def _share(self, rows_CB: Tensor | None) -> float:
        return 1.0 if rows_CB is None else rows_CB.shape[1] / self.num_samples


@dataclass(frozen=True)
class Posterior:
    """p(w) proportional to exp(-nbeta L(w) - localization/2 |w - centre|^2).

    Attributes:
        losses: L, the mean loss over the N samples.
        centre: start of each chain and centre of its localization, (C, D).
        nbeta: inverse temperatures, n beta, (C,).
        localization: gamma, (C,).
        free: whether a parameter moves, (D,); None lets all move.
        whitening: by the Hessian at the centre, or by factors of it; None if neither
            is known.
        observables: recorded at the draws if `Steps` has it so; None if there are none.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 19; gamma and the step as in
        devinterp: dw = -(lr/2) (nbeta grad L + gamma (w - w*)) + N(0, lr).
    """

    losses: ChainLosses
    centre: Tensor
    nbeta: Tensor
    localization: Tensor
    free: Tensor | None = None
    whitening: Whitening | BlockWhitening | None = None
    observables: Observables | None = None

    @cached_property
    def num_free(self) -> int:
        """Number of parameters that move."""
        return self.centre.shape[1] if self.free is None else int(self.free.sum())

    def energy(self, weights_CD: Tensor, losses_C: Tensor) -> Tensor:
        """Return -log p up to a constant, (C,), from the mean losses there."""
        apart_C = (weights_CD - self.centre).square().sum(1)
        return self.nbeta * losses_C + self.localization / 2 * apart_C

    def drift(self, weights_CD: Tensor, gradients_CD: Tensor) -> Tensor:
        """Return the gradient of the energy, (C, D), from that of the mean loss."""
        held_CD = self.localization[:, None] * (weights_CD - self.centre)
        drift_CD = self.nbeta[:, None] * gradients_CD + held_CD
        return drift_CD if self.free is None else drift_CD * self.free


@dataclass(frozen=True)
class Draws:
    """Losses and distances of draws, with the state that sampling resumes from.

    Attributes:
        losses: mean loss at the draws, over all the data or as requested, (C, K).
        batch_losses: the loss that the sampler computed at the draw, (C, K).
        distances: |w - centre| at the draws, (C, K).
        acceptance: mean probability at which a Metropolis step accepts, (C,); of mala
            its own, of others measured at some draws.
        raised: what finite steps of sgld add to nbeta E L, measured with the
            acceptance, (C,); 0 of a method that accepts or rejects.
        heat: upper bound of what the noise of batches adds to nbeta E L, measured with
            the acceptance, (C,); 0 without batches.
        failed_at: the step at which a chain left the finite numbers, (C,); -1 if it
            did not.
        passes: work, in gradients of the mean loss over all the data, (C,).
        weights: the draws themselves, (C, K, D), if requested.
        state: tensors with leading dimension C that the next draws resume from.
        observed: observables at the draws, (C, K, O), if requested.
    """

    losses: Tensor
    batch_losses: Tensor
    distances: Tensor
    acceptance: Tensor
    raised: Tensor
    heat: Tensor
    failed_at: Tensor
    passes: Tensor
    weights: Tensor | None
    state: dict[str, Tensor]
    observed: Tensor | None = None


AtDraws = Literal["full", "control_variate", "batch"]


class Stream(NamedTuple):
    """Source of a chain's random numbers.

    Attributes:
        seed: shared by the chains of a target.
        chain: number of the chain about its target.
    """

    seed: int
    chain: int


@dataclass(frozen=True)
class Steps:
    """Settings of a sampler, and the steps at which draws are taken.

    A draw is the weights that a step leaves: of every `num_steps_bw_draws` steps after
    the burn-in, the last. The loss that the sampler computes there is thus the draw's.

    Attributes:
        method: name of a file in `sampling/methods`.
        lr: step sizes, (C,).
        num_draws: draws of the whole run, K.
        num_burnin_steps: steps before those that give draws.
        num_steps_bw_draws: steps from draw to draw.
        batch_size: samples per step, drawn with replacement: a batch is then
            independent of the weights, so that its loss is unbiased there and the
            closed form of its noise holds. None takes all.
        at_draws: the loss at a draw: `full`, over all the data; `batch`, over the
            step's batch; `control_variate`, the batch's, less that batch's loss at the
            centre, plus the full loss there.
        friction: of sghmc and sgnht: share of the velocity lost in a step.
        decay: of rmsprop_sgld and adam_sgld: of the mean square of the gradient.
        damping: of the same: added to the root of that mean.
        adapt: whether the burn-in moves lr to the method's acceptance.
        most_lr: bounds of lr as it moves, (C,); None if there are none.
        measure_acceptance: whether, for methods that accept all steps, the acceptance
            of a Metropolis step, the excess by steps and the heat of the batch are
            measured, at about 2 log2 K draws; each costs two gradients over all the
            data and one of the batch.
        keep_draws: whether the weights of draws are kept.
        observe: whether the observables of the posterior are recorded.
    """

    method: str
    lr: Tensor
    num_draws: int
    num_burnin_steps: int = 0
    num_steps_bw_draws: int = 1
    batch_size: int | None = None
    at_draws: AtDraws = "full"
    friction: float = 0.1
    decay: float = 0.99
    damping: float = 0.1
    adapt: bool = False
    most_lr: Tensor | None = None
    measure_acceptance: bool = True
    keep_draws: bool = False
    observe: bool = False

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.step_of(self.num_draws - 1) + 1

    def step_of(self, draw: int) -> int:
        """Return the step that leaves a draw."""
        return self.num_burnin_steps + (draw + 1) * self.num_steps_bw_draws - 1

    def draw_left_by(self, step: int) -> int | None:
        """Return the draw that a step leaves, or None."""
        after = step + 1 - self.num_burnin_steps
        draw, rest = divmod(after, self.num_steps_bw_draws)
        return draw - 1 if after > 0 and rest == 0 else None
