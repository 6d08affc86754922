"""Sampling of all chains in one batched program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling import methods
from curvflow.tasks.numerics.sampling.counted import Counted
from curvflow.tasks.numerics.sampling.posteriors import Draws, Posterior
from curvflow.tasks.numerics.sampling.steps import Steps, Stream
from curvflow.tasks.numerics.sampling.walk import Walk


def sample(
    posterior: Posterior,
    steps: Steps,
    streams: Sequence[Stream],
    *,
    earlier: Mapping[str, Tensor] | None = None,
) -> Draws:
    """Draw from tempered posteriors, each chain by random numbers of its own.

    Chains start at the centre. One that leaves the finite numbers is noted, its draws
    are NaN from there on, and the others do not see it.

    Args:
        posterior: what is sampled.
        steps: how; `num_draws` counts from the beginning of the walk.
        streams: one for each chain, C of them.
        earlier: the state of earlier draws of the same posterior, steps and streams,
            to go on from. Draws are the same, bit by bit, as of one longer walk.

    Returns:
        The draws, those after the earlier ones; passes, acceptance, heat and
        failed_at are of the whole walk.

    Raises:
        ValueError: the method is unknown, does not take batches or does not adapt; or
            a batch is larger than the data.
    """
    _check(posterior, steps, streams)
    counted = Counted(posterior.losses)
    walk = Walk(replace(posterior, losses=counted), steps, streams, earlier)
    while walk.step < steps.total:
        walk.walk_block()
    walk.state["passes"] += counted.passes
    return _draws(walk, posterior.centre)


def _draws(walk: Walk, like_CD: Tensor) -> Draws:
    state, recorded = walk.state, walk.recorded
    losses_CK = recorded.losses(like_CD)
    left_K = torch.tensor(recorded.steps, dtype=torch.int64, device=like_CD.device)
    _note_failures(state, losses_CK, left_K)
    failed_C1 = state["failed_at"][:, None]
    lost_CK = (failed_C1 >= 0) & (left_K >= failed_C1)
    weights_CKD = recorded.weights(like_CD)
    if weights_CKD is not None:
        weights_CKD.masked_fill_(lost_CK[..., None], math.nan)
    return Draws(
        losses=losses_CK.masked_fill(lost_CK, math.nan),
        batch_losses=recorded.batch_losses(like_CD).masked_fill(lost_CK, math.nan),
        distances=recorded.distances(like_CD).masked_fill(lost_CK, math.nan),
        acceptance=state["accepted"] / state["asked"],
        heat=state["heat"] / state["asked"],
        failed_at=state["failed_at"],
        passes=state["passes"],
        weights=weights_CKD,
        state=state,
    )


def _note_failures(state: dict[str, Tensor], losses_CK: Tensor, left_K: Tensor) -> None:
    """A loss over all the data may leave the finite numbers before a batch's does."""
    for draw in (~losses_CK.isfinite()).any(0).nonzero().flatten().tolist():
        failed_C = state["failed_at"]
        at = int(left_K[draw])
        fails_C = ~losses_CK[:, draw].isfinite() & ((failed_C < 0) | (failed_C > at))
        state["failed_at"] = torch.where(fails_C, at, failed_C)
    state["weights"][state["failed_at"] >= 0] = math.nan


def _check(posterior: Posterior, steps: Steps, streams: Sequence[Stream]) -> None:
    method, batch = methods.find(steps.method), steps.batch_size
    is_exact = method.target_acceptance is not None
    num_samples, num_chains = posterior.losses.num_samples, len(posterior.centre)
    if is_exact and batch is not None:
        raise ValueError(
            f"batch_size: expected null with {steps.method}, which takes all the data, "
            f"got {batch}."
        )
    if batch is not None and not 1 <= batch <= num_samples:
        raise ValueError(
            f"batch_size: expected 1 to {num_samples} samples, got {batch}."
        )
    if steps.adapt and not is_exact:
        raise ValueError(f"adapt: {steps.method} accepts every step.")
    if len(streams) != num_chains:
        raise ValueError(
            f"streams: expected {num_chains}, one for each chain, got {len(streams)}."
        )
