"""How chains are sampled, and from which streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

AtDraws = Literal["full", "control_variate", "batch"]


class Stream(NamedTuple):
    """What a chain's random numbers depend on, beside where in the walk it is.

    Attributes:
        seed: shared by the chains of a member.
        chain: number of the chain within its member.
    """

    seed: int
    chain: int


@dataclass(frozen=True)
class Steps:
    """How chains walk and when a draw is taken.

    A draw is the weights that a step leaves: of every `num_steps_bw_draws` steps after
    the burn-in, the last. The loss that the sampler computes there is thus the draw's.

    Attributes:
        method: name of a file in `sampling/methods`.
        lr: step sizes, (C,).
        num_draws: draws of the whole walk, K.
        num_burnin_steps: steps before those that give draws.
        num_steps_bw_draws: steps from draw to draw.
        batch_size: samples per step, drawn with replacement: a batch is then
            independent of the weights, so that its loss is unbiased there and the
            closed form of its noise holds. None takes all.
        at_draws: the loss at a draw: `full`, over all the data; `batch`, over the
            step's batch; `control_variate`, the batch's, less that batch's loss at the
            centre, plus the full loss there.
        friction: of sghmc and sgnht: what a step takes of the velocity.
        decay: of rmsprop_sgld and adam_sgld: of the mean square of the gradient.
        damping: of the same: added to the root of that mean.
        adapt: whether the burn-in moves lr to the method's acceptance.
        most_lr: bounds of lr as it moves, (C,); None if there are none.
        measure_acceptance: whether methods that accept all steps are asked, at about
            2 log2 K draws, how likely a Metropolis step would be accepted, and how
            much the batch heats; each costs two gradients over all the data and one
            of the batch.
        keep_draws: whether the weights of draws are kept.
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

    @property
    def total(self) -> int:
        """Number of steps of the whole walk."""
        return self.step_of(self.num_draws - 1) + 1

    def step_of(self, draw: int) -> int:
        """Return the step that leaves a draw."""
        return self.num_burnin_steps + (draw + 1) * self.num_steps_bw_draws - 1

    def draw_left_by(self, step: int) -> int | None:
        """Return the draw that a step leaves, or None."""
        after = step + 1 - self.num_burnin_steps
        draw, rest = divmod(after, self.num_steps_bw_draws)
        return draw - 1 if after > 0 and rest == 0 else None
