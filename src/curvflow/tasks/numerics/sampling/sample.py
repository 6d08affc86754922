"""Sampling of all chains in one batched program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling import methods
from curvflow.tasks.numerics.sampling.methods.mala import Position, evaluate, propose
from curvflow.tasks.numerics.sampling.posteriors import (
    CountedLosses,
    Draws,
    Posterior,
    Steps,
    Stream,
)
from curvflow.tasks.numerics.sampling.step_context import (
    RandomNumbers,
    StepContext,
    block_length,
    noise_at_draw,
    noise_at_start,
)


class DrawRecorder:
    """Losses, distances and, if requested, weights and observables of draws, in order.

    Attributes:
        steps: number of the step of each draw.
    """

    def __init__(self, posterior: Posterior, steps: Steps) -> None:
        """Record nothing yet."""
        self._posterior, self._settings = posterior, steps
        self.steps: list[int] = []
        self._losses: list[Tensor] = []
        self._batch_losses: list[Tensor] = []
        self._distances: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._observed: list[Tensor] = []
        self._observables = posterior.observables if steps.observe else None
        self._centre_losses_C: Tensor | None = None
        self._apart_CD: Tensor | None = None

    def before(self, step: int, weights_CD: Tensor, rows_CB: Tensor | None) -> None:
        """Record the weights that a step is about to leave."""
        if self._apart_CD is None:
            self._apart_CD = torch.empty_like(weights_CD)
        torch.sub(weights_CD, self._posterior.centre, out=self._apart_CD)
        self._distances.append(torch.linalg.vector_norm(self._apart_CD, dim=1))
        if self._settings.keep_draws:
            self._weights.append(weights_CD.clone())
        if self._observables is not None:
            self._observed.append(self._observables.values(weights_CD))
        if rows_CB is not None and self._settings.at_draws == "full":
            self._losses.append(self._posterior.losses.values(weights_CD, None))
        elif rows_CB is not None and self._settings.at_draws == "control_variate":
            self._losses.append(self._apart_from_all(rows_CB))
        self.steps.append(step)

    def _apart_from_all(self, rows_CB: Tensor) -> Tensor:
        losses, centre_CD = self._posterior.losses, self._posterior.centre
        if self._centre_losses_C is None:
            self._centre_losses_C = losses.values(centre_CD, None)
        return self._centre_losses_C - losses.values(centre_CD, rows_CB)

    def after(self, losses_C: Tensor) -> None:
        """Record the mean losses that the step computed there, (C,)."""
        self._batch_losses.append(losses_C)
        if len(self._losses) < len(self._batch_losses):
            self._losses.append(losses_C)
        elif self._settings.at_draws == "control_variate":
            self._losses[-1] = self._losses[-1] + losses_C

    def losses(self, like_CD: Tensor) -> Tensor:
        """Return the mean losses as `at_draws` requests, (C, K)."""
        return _stacked(self._losses, like_CD[:, 0])

    def batch_losses(self, like_CD: Tensor) -> Tensor:
        """Return the mean losses that the sampler computed, (C, K)."""
        return _stacked(self._batch_losses, like_CD[:, 0])

    def distances(self, like_CD: Tensor) -> Tensor:
        """Return the distances from the centre, (C, K)."""
        return _stacked(self._distances, like_CD[:, 0])

    def weights(self, like_CD: Tensor) -> Tensor | None:
        """Return the draws, (C, K, D), if requested."""
        return _stacked(self._weights, like_CD) if self._settings.keep_draws else None

    def observed(self) -> Tensor | None:
        """Return the observables, (C, K, O), if they were requested."""
        return torch.stack(self._observed, 1) if self._observed else None

    @property
    def passes(self) -> float:
        """Work that observables took, in gradients over all data."""
        each = 0.0 if self._observables is None else self._observables.passes
        return len(self._observed) * each


def _stacked(rows: list[Tensor], like: Tensor) -> Tensor:
    return (
        torch.stack(rows, 1) if rows else like.new_empty(len(like), 0, *like.shape[1:])
    )


# State of every method whose dtype is not that of the weights.
COUNTS = ("step", "failed_at")
SUMS = ("accepted", "raised", "heat", "asked", "passes", "pace", "whitened_pace")


# Times that the way to a chain's start is halved, until nbeta L has risen there by no
# more than d: twice as much as it rises at a regular minimum in the mean. If it never
# is, the chain starts at the weights.
HALVINGS = 20


class ChainRun:
    """A run of chains: their state, their draws, and the steps done.

    Attributes:
        state: tensors whose first dimension is the chain, by name.
        recorder: losses and distances at the draws.
        step: steps done.
    """

    def __init__(
        self,
        posterior: Posterior,
        steps: Steps,
        streams: Sequence[Stream],
        earlier: Mapping[str, Tensor] | None,
    ) -> None:
        """Start the chains at the centre, or at the state of an earlier run."""
        self._posterior, self._steps, self._streams = posterior, steps, streams
        self._method = methods.find(steps.method)
        self._target = self._method.target_acceptance
        self.recorder = DrawRecorder(posterior, steps)
        self._context = StepContext(posterior, steps)
        self._numbers = RandomNumbers(
            streams,
            posterior.centre,
            num_samples=posterior.losses.num_samples,
            batch_size=steps.batch_size,
            free=posterior.free,
        )
        self.state = self._start() if earlier is None else self._resumed(earlier)
        self._context.set_lr(self.state["lr"])
        self.step = int(self.state["step"][0])

    def _start(self) -> dict[str, Tensor]:
        weights_CD = self._first_weights()
        counts_C = torch.zeros_like(weights_CD[:, 0], dtype=torch.int64)
        sums_C = torch.zeros_like(counts_C, dtype=torch.float64)
        return {
            "weights": weights_CD,
            "step": counts_C,
            "failed_at": counts_C - 1,
            "lr": self._steps.lr.to(weights_CD, copy=True),
            "accepted": sums_C,
            "raised": sums_C.clone(),
            "heat": sums_C.clone(),
            "asked": sums_C.clone(),
            "passes": sums_C.clone(),
            **self._method.init(weights_CD, self._posterior),
        }

    def _first_weights(self) -> Tensor:
        posterior = self._posterior
        if not self._method.is_whitened or posterior.whitening is None:
            return posterior.centre.clone()
        noise_CD = noise_at_start(self._streams, posterior.centre)
        if posterior.free is not None:
            noise_CD *= posterior.free
        apart_CD = posterior.whitening(noise_CD)
        first_C = posterior.losses.values(posterior.centre, None)
        for _ in range(HALVINGS):  # all, so that work does not depend on siblings
            weights_CD = posterior.centre + apart_CD
            rise_C = posterior.losses.values(weights_CD, None) - first_C
            is_near_C = posterior.nbeta * rise_C <= posterior.num_free
            apart_CD = torch.where(is_near_C[:, None], apart_CD, apart_CD / 2)
        return torch.where(is_near_C[:, None], weights_CD, posterior.centre)

    def _resumed(self, earlier: Mapping[str, Tensor]) -> dict[str, Tensor]:
        like_CD, kinds = self._posterior.centre, dict.fromkeys(SUMS, torch.float64)
        kinds |= dict.fromkeys(COUNTS, torch.int64)
        return {
            name: tensor.to(like_CD.device, kinds.get(name, like_CD.dtype), copy=True)
            for name, tensor in earlier.items()
        }

    def run_block(self) -> None:
        """Take the steps to the end of the current block, or of the run."""
        size = block_length(self._posterior.centre.shape[1])
        count = min(size - self.step % size, self._steps.total - self.step)
        losses = [self._take(step) for step in range(self.step, self.step + count)]
        self._freeze(torch.stack(losses))
        self.step += count
        self.state["step"] += count

    def _take(self, step: int) -> Tensor:
        self._context.advance_to(step, self._numbers)
        draw = self._steps.draw_left_by(step)
        if draw is not None:
            self.recorder.before(step, self.state["weights"], self._context.rows)
            if self._target is None and self._steps.measure_acceptance:
                self._measure(draw)
        losses_C, probability_C = self._method.step(self.state, self._context)
        if draw is not None:
            self.recorder.after(losses_C)
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
            name = self._method.step_name(step, self._posterior)
            self.state[name].mul_(away_C.exp())
            if self._steps.most_lr is not None:
                self.state["lr"].clamp_(max=self._steps.most_lr.to(self.state["lr"]))
            self._context.set_lr(self.state["lr"])

    def _measure(self, draw: int) -> None:
        if not is_measured(draw):
            return
        weights_CD, free = self.state["weights"], self._posterior.free
        noise_CD = noise_at_draw(draw, self._streams, weights_CD)
        if free is not None:
            noise_CD *= free
        here = evaluate(self._posterior, weights_CD)
        lr_CD = self._context.lr
        if self._method.scale is not None:
            lr_CD = lr_CD * self._method.scale(self.state, self._steps)
        whitening = self._posterior.whitening
        _, probability_C = propose(self._posterior, here, lr_CD, noise_CD, whitening)
        self.state["accepted"] += probability_C.nan_to_num(0.0)
        self.state["raised"] += self._raised(here, lr_CD).nan_to_num(0.0)
        self.state["heat"] += self._heat(here, lr_CD).nan_to_num(0.0)
        self.state["asked"] += 1

    def _raised(self, here: Position, lr_CD: Tensor) -> Tensor:
        """Return what steps of sgld add to nbeta E L, (C,), in the mean over draws.

        In a direction of curvature c = nbeta h + gamma draws have 1 / (1 - lr c / 4)
        times the variance 1 / c, so that the mean of lr (nbeta h x) (c x) / 8 is the
        excess of that of nbeta h x^2 / 2. Where the loss rises with a higher power than
        the second it is an upper bound, to first order in lr.
        """
        posterior, drift_CD = self._posterior, here.drift
        held_CD = posterior.localization[:, None] * (here.weights - posterior.centre)
        of_loss_CD = drift_CD - held_CD
        if posterior.whitening is not None:
            drift_CD, of_loss_CD = map(posterior.whitening, (drift_CD, of_loss_CD))
        raised_C: Tensor = torch.linalg.vecdot(lr_CD * of_loss_CD, drift_CD)
        return raised_C / 8

    def _heat(self, here: Position, lr_CD: Tensor) -> Tensor:
        """Return a bound of what this step's batch would add to nbeta E L, (C,).

        A direction of curvature c forgets lr c of its variance 1 / c in a step; noise
        x of the drift adds lr^2 x^2 / 4 to the lr of the chain, and so lr x^2 / 8 to
        the energy, of which the loss has a part of nbeta h / c.
        """
        if self._context.rows is None:
            return torch.zeros_like(here.losses)
        _, gradients_CD = self._context.gradients(here.weights)
        apart_CD = self._posterior.drift(here.weights, gradients_CD) - here.drift
        if self._posterior.whitening is not None:
            apart_CD = self._posterior.whitening(apart_CD)
        heat_C = (lr_CD * apart_CD.square()).sum(1) / 8
        return heat_C / (self._steps.friction if self._method.has_friction else 1)

    def _freeze(self, losses_TC: Tensor) -> None:
        """Mark the chains that left the finite numbers, and set them to NaN."""
        weights_CD, failed_C = self.state["weights"], self.state["failed_at"]
        fine_C = torch.linalg.vector_norm(weights_CD, dim=1).isfinite()
        fine_TC = torch.cat([losses_TC.isfinite(), fine_C[None]])
        fails_C = (failed_C < 0) & ~fine_TC.all(0)
        first_C = self.step + fine_TC.to(torch.uint8).argmin(0)
        self.state["failed_at"] = torch.where(fails_C, first_C, failed_C)
        weights_CD.masked_fill_(self.state["failed_at"][:, None] >= 0, math.nan)


def is_measured(draw: int) -> bool:
    """Return whether acceptance is measured at a draw.

    It is measured at the 1st, 2nd, 3rd, 4th, 6th, 8th, 11th, 16th and so on by powers
    of the root of 2, however many draws there will be.
    """
    nearest = round(2 * math.log2(draw + 1))
    return draw + 1 == round(2 ** (nearest / 2))


def sample(
    posterior: Posterior,
    steps: Steps,
    streams: Sequence[Stream],
    *,
    earlier: Mapping[str, Tensor] | None = None,
) -> Draws:
    """Draw from tempered posteriors, each chain with random numbers of its stream.

    Chains start at the centre, of a method that is whitened every second one apart.
    The draws of a chain that leaves the finite numbers are NaN from there on, and the
    other chains are not affected.

    Args:
        posterior: the density.
        steps: settings; `num_draws` counts from the beginning of the run.
        streams: one for each chain, C of them.
        earlier: the state of earlier draws of the same posterior, steps and streams,
            to resume from. Draws equal, bit by bit, those of one longer run.

    Returns:
        The draws after the earlier ones; passes, acceptance, raised, heat and failed_at
        are of the whole run.

    Raises:
        ValueError: the method is unknown, does not take batches or does not adapt; or
            a batch is larger than the data.
    """
    _check(posterior, steps, streams)
    counted = CountedLosses(posterior.losses)
    run = ChainRun(replace(posterior, losses=counted), steps, streams, earlier)
    while run.step < steps.total:
        run.run_block()
    run.state["passes"] += counted.passes + run.recorder.passes
    return _draws(run, posterior.centre)


def _draws(run: ChainRun, like_CD: Tensor) -> Draws:
    state, recorder = run.state, run.recorder
    losses_CK = recorder.losses(like_CD)
    left_K = torch.tensor(recorder.steps, dtype=torch.int64, device=like_CD.device)
    _mark_failures(state, losses_CK, left_K)
    failed_C1 = state["failed_at"][:, None]
    lost_CK = (failed_C1 >= 0) & (left_K >= failed_C1)
    weights_CKD, observed_CKO = recorder.weights(like_CD), recorder.observed()
    for kept in (weights_CKD, observed_CKO):
        if kept is not None:
            kept.masked_fill_(lost_CK[..., None], math.nan)
    return Draws(
        losses=losses_CK.masked_fill(lost_CK, math.nan),
        batch_losses=recorder.batch_losses(like_CD).masked_fill(lost_CK, math.nan),
        distances=recorder.distances(like_CD).masked_fill(lost_CK, math.nan),
        acceptance=state["accepted"] / state["asked"],
        raised=state["raised"] / state["asked"],
        heat=state["heat"] / state["asked"],
        failed_at=state["failed_at"],
        passes=state["passes"],
        weights=weights_CKD,
        state=state,
        observed=observed_CKO,
    )


def _mark_failures(state: dict[str, Tensor], losses_CK: Tensor, left_K: Tensor) -> None:
    """Mark chains whose loss over all data is not finite, though a batch's still is."""
    for draw in (~losses_CK.isfinite()).any(0).nonzero().flatten().tolist():
        failed_C = state["failed_at"]
        at = int(left_K[draw])
        fails_C = ~losses_CK[:, draw].isfinite() & ((failed_C < 0) | (failed_C > at))
        state["failed_at"] = torch.where(fails_C, at, failed_C)
    state["weights"][state["failed_at"] >= 0] = math.nan


def _check(posterior: Posterior, steps: Steps, streams: Sequence[Stream]) -> None:
    method, batch = methods.find(steps.method), steps.batch_size
    is_exact = method.is_exact
    num_samples, num_chains = posterior.losses.num_samples, len(posterior.centre)
    if is_exact and batch is not None:
        raise ValueError(
            f"batch_size cannot be combined with {steps.method}, which takes all the "
            "data. Remove it, or take sgld."
        )
    if batch is not None and not 1 <= batch <= num_samples:
        raise ValueError(
            f"batch_size: expected 1 to {num_samples} samples, got {batch}. Choose "
            "another."
        )
    if steps.adapt and not is_exact:
        raise ValueError(
            f"adapt cannot be combined with {steps.method}, which accepts every step. "
            "Remove adapt, or choose another method."
        )
    if len(streams) != num_chains:
        raise ValueError(
            f"streams: expected {num_chains}, one for each chain, got {len(streams)}. "
            "Pass as many."
        )
