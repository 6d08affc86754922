"""Chains on their walk: what they keep, block by block of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling import methods
from curvflow.tasks.numerics.sampling.chances import block_length, noise_at_draw
from curvflow.tasks.numerics.sampling.metropolis import Place, look, propose
from curvflow.tasks.numerics.sampling.now import Now
from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.recorded import Recorded
from curvflow.tasks.numerics.sampling.steps import Steps, Stream
from curvflow.tasks.numerics.sampling.supply import Supply

# What every method keeps that is not of the weights' dtype.
COUNTS = ("step", "failed_at")
SUMS = ("accepted", "heat", "asked", "passes")


class Walk:
    """Chains, where they are and what is needed to go on.

    Attributes:
        state: tensors whose first dimension is the chain, by name.
        recorded: what was seen at the draws.
        step: steps done.
    """

    def __init__(
        self,
        posterior: Posterior,
        steps: Steps,
        streams: Sequence[Stream],
        earlier: Mapping[str, Tensor] | None,
    ) -> None:
        """Put the chains at the centre, or where an earlier walk left them."""
        self._posterior, self._steps, self._streams = posterior, steps, streams
        self._method = methods.find(steps.method)
        self._target = self._method.target_acceptance
        self._now = Now(posterior, steps)
        self._supply = Supply(
            streams,
            posterior.centre,
            num_samples=posterior.losses.num_samples,
            batch_size=steps.batch_size,
            free=posterior.free,
        )
        self.recorded = Recorded(posterior, steps)
        self.state = self._start() if earlier is None else self._going_on(earlier)
        self.step = int(self.state["step"][0])

    def _start(self) -> dict[str, Tensor]:
        weights_CD = self._posterior.centre.clone()
        counts_C = torch.zeros_like(weights_CD[:, 0], dtype=torch.int64)
        sums_C = torch.zeros_like(counts_C, dtype=torch.float64)
        return {
            "weights": weights_CD,
            "step": counts_C,
            "failed_at": counts_C - 1,
            "lr": self._steps.lr.to(weights_CD, copy=True),
            "accepted": sums_C,
            "heat": sums_C.clone(),
            "asked": sums_C.clone(),
            "passes": sums_C.clone(),
            **self._method.init(weights_CD, self._posterior),
        }

    def _going_on(self, earlier: Mapping[str, Tensor]) -> dict[str, Tensor]:
        like_CD, kinds = self._posterior.centre, dict.fromkeys(SUMS, torch.float64)
        kinds |= dict.fromkeys(COUNTS, torch.int64)
        return {
            name: tensor.to(like_CD.device, kinds.get(name, like_CD.dtype), copy=True)
            for name, tensor in earlier.items()
        }

    def walk_block(self) -> None:
        """Walk to the end of the current block of steps, or of the walk."""
        size = block_length(self._posterior.centre.shape[1])
        count = min(size - self.step % size, self._steps.total - self.step)
        self._now.walk_by(self.state["lr"])
        seen = []
        for step in range(self.step, self.step + count):
            self._now.arrive(step, self._supply)
            seen.append(self._take(step))
        self._freeze(torch.stack(seen))
        self.step += count
        self.state["step"] += count

    def _take(self, step: int) -> Tensor:
        draw = self._steps.draw_left_by(step)
        if draw is not None:
            self.recorded.before(step, self.state["weights"], self._now.rows)
            if self._target is None and self._steps.measure_acceptance:
                self._measure(draw)
        losses_C, probability_C = self._method.step(self.state, self._now)
        if draw is not None:
            self.recorded.after(losses_C)
        if probability_C is not None:
            self._accepted(step, probability_C)
        return losses_C

    def _accepted(self, step: int, probability_C: Tensor) -> None:
        if step >= self._steps.num_burnin_steps:
            self.state["accepted"] += probability_C
            self.state["asked"] += 1
        elif self._steps.adapt and self._target is not None:
            # Robbins and Monro (1951): gains that sum to infinity, their squares not.
            away_C = (probability_C - self._target) * (step + 1) ** -0.6
            self.state["lr"].mul_(away_C.exp())
            if self._steps.most_lr is not None:
                self.state["lr"].clamp_(max=self._steps.most_lr.to(self.state["lr"]))
            self._now.walk_by(self.state["lr"])

    def _measure(self, draw: int) -> None:
        if not is_measured(draw):
            return
        weights_CD, free = self.state["weights"], self._posterior.free
        noise_CD = noise_at_draw(draw, self._streams, weights_CD)
        if free is not None:
            noise_CD *= free
        here = look(self._posterior, weights_CD)
        lr_CD = self._now.lr
        if self._method.scale is not None:
            lr_CD = lr_CD * self._method.scale(self.state, self._steps)
        _, probability_C = propose(self._posterior, here, lr_CD, noise_CD)
        self.state["accepted"] += probability_C.nan_to_num(0.0)
        self.state["heat"] += self._heat(here, lr_CD).nan_to_num(0.0)
        self.state["asked"] += 1

    def _heat(self, here: Place, lr_CD: Tensor) -> Tensor:
        """Return what this step's batch would add to nbeta E L at the most, (C,).

        A direction of curvature c forgets lr c of its variance 1 / c in a step; noise
        x of the drift adds lr^2 x^2 / 4 to the lr of the walk, and so lr x^2 / 8 to the
        energy, of which the loss has a part of nbeta h / c.
        """
        if self._now.rows is None:
            return torch.zeros_like(here.losses)
        _, gradients_CD = self._now.gradients(here.weights)
        apart_CD = self._posterior.drift(here.weights, gradients_CD) - here.drift
        heat_C = (lr_CD * apart_CD.square()).sum(1) / 8
        return heat_C / (self._steps.friction if self._method.has_friction else 1)

    def _freeze(self, seen_TC: Tensor) -> None:
        """Note the chains that left the finite numbers, and leave them NaN."""
        weights_CD, failed_C = self.state["weights"], self.state["failed_at"]
        fine_C = torch.linalg.vector_norm(weights_CD, dim=1).isfinite()
        fine_TC = torch.cat([seen_TC.isfinite(), fine_C[None]])
        fails_C = (failed_C < 0) & ~fine_TC.all(0)
        first_C = self.step + fine_TC.to(torch.uint8).argmin(0)
        self.state["failed_at"] = torch.where(fails_C, first_C, failed_C)
        weights_CD.masked_fill_(self.state["failed_at"][:, None] >= 0, math.nan)


def is_measured(draw: int) -> bool:
    """Return whether acceptance is measured at a draw.

    It is at the 1st, 2nd, 3rd, 4th, 6th, 8th, 11th, 16th and so on by powers of the
    root of 2, however many draws there will be.
    """
    nearest = round(2 * math.log2(draw + 1))
    return draw + 1 == round(2 ** (nearest / 2))
