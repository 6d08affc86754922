"""What is sampled: the tempered posterior about a point, for many chains at once.

Letters beside those of the package: C chains, of all members of a tile; K draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class ChainLosses(Protocol):
    """Mean losses of the chains, each over data of its own or shared."""

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        ...

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        ...

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D).

        Args:
            weights_CD: where.
            rows_CB: the samples of each chain's batch; None for all of the data.
        """
        ...


@dataclass(frozen=True)
class Posterior:
    """p(w) proportional to exp(-nbeta L(w) - localization/2 |w - centre|^2).

    Attributes:
        losses: L, the mean loss over the N samples.
        centre: where each chain starts and what holds it, (C, D).
        nbeta: inverse temperatures, n beta, (C,).
        localization: gamma, (C,).
        free: whether a parameter moves, (D,); None lets all move.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 19; gamma and the step as in
        devinterp: dw = -(lr/2) (nbeta grad L + gamma (w - w*)) + N(0, lr).
    """

    losses: ChainLosses
    centre: Tensor
    nbeta: Tensor
    localization: Tensor
    free: Tensor | None = None

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
    """What sampling gave, with what it needs to go on.

    Attributes:
        losses: mean loss at the draws, over all the data or as it was asked, (C, K).
        batch_losses: the loss that the sampler saw when it left the draw, (C, K).
        distances: |w - centre| at the draws, (C, K).
        acceptance: mean probability at which a Metropolis step accepts, (C,); of mala
            its own, of others measured at some draws.
        heat: what the noise of batches adds at the most to nbeta E L, measured where
            acceptance is, (C,); 0 without batches.
        failed_at: the step at which a chain left the finite numbers, (C,); -1 if it
            did not.
        passes: work, in gradients of the mean loss over all the data, (C,).
        weights: the draws themselves, (C, K, D), if they were asked for.
        state: tensors with leading dimension C that the next draws go on from.
    """

    losses: Tensor
    batch_losses: Tensor
    distances: Tensor
    acceptance: Tensor
    heat: Tensor
    failed_at: Tensor
    passes: Tensor
    weights: Tensor | None
    state: dict[str, Tensor]
