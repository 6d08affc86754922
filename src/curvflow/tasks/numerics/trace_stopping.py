"""Traces that stop where their standard error is as small as asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.sketched_traces import (
    Hutchinson,
    HutchPlusPlus,
    Probed,
    XTrace,
)
from curvflow.tasks.numerics.traces import estimate

METHODS: dict[str, type[Probed]] = {
    "hutchinson": Hutchinson,
    "hutch++": HutchPlusPlus,
    "xtrace": XTrace,
}


@dataclass(frozen=True)
class TraceDraws:
    """Estimates of one operator's trace by blocks.

    Attributes:
        draws: whose mean is the trace of each block, (L, S), float64, on the CPU.
        layer_sem: standard error of that mean, (L,).
        sem: standard error of the whole trace, the sum over blocks, ().
        num_matvecs: products made.
        reached: whether the relative standard error asked for was reached; True if
            none was.
    """

    draws: Tensor
    layer_sem: Tensor
    sem: Tensor
    num_matvecs: int
    reached: bool


def traces(
    operator: BatchedOperator,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    method: str,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[TraceDraws]:
    """Estimate traces by blocks, with as many vectors as the error asked for takes.

    Looks are taken at `num_probes` vectors, twice, four times as many, ... up to
    `max_probes`, and nowhere else. A model stops at the first look where its standard
    error is at most `rel_sem` of its trace. Each model stops by itself.

    Args:
        operator: symmetric maps of M models.
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors.
        method: `hutchinson`, `hutch++` or `xtrace`.
        num_probes: vectors at the first look.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: standard error of the whole trace asked for, relative to it; None stops
            at the first look.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        Per model its draws and its work.
    """
    probed = METHODS[method](
        operator, seeds, sizes=sizes, distribution=distribution, block=block
    )
    found: dict[int, TraceDraws] = {}
    numbers = list(range(operator.shape[0]))
    for look in looks(num_probes, None if rel_sem is None else max_probes):
        probed.grow(look)
        now = _summed_up(probed, rel_sem)
        found.update(zip(numbers, now, strict=True))
        going = [index for index, one in enumerate(now) if not one.reached]
        if not going or rel_sem is None:
            break
        if len(going) < len(numbers):
            # A model alone is computed beside a copy of itself.
            going = going * 2 if len(going) == 1 else going
            numbers = [numbers[index] for index in going]
            probed.select(torch.tensor(going, device=operator.device))
    return [found[number] for number in range(operator.shape[0])]


def _summed_up(probed: Probed, rel_sem: float | None) -> list[TraceDraws]:
    draws_MLS = probed.draws().cpu()
    whole, parts = estimate(draws_MLS.sum(1)), estimate(draws_MLS)
    sem_M = probed.spread * whole.sem
    reached_M = sem_M <= (torch.inf if rel_sem is None else rel_sem) * whole.mean.abs()
    return [
        TraceDraws(
            draws_MLS[number],
            probed.spread * parts.sem[number],
            sem_M[number],
            probed.num_matvecs,
            rel_sem is None or bool(reached_M[number]),
        )
        for number in range(len(draws_MLS))
    ]


def looks(num_probes: int, max_probes: int | None) -> list[int]:
    """Return at how many vectors the standard error is looked at: by doubling.

    Args:
        num_probes: at the first look.
        max_probes: at the last one; None for the first alone.
    """
    found = [num_probes]
    while max_probes is not None and found[-1] < max_probes:
        found.append(min(2 * found[-1], max_probes))
    return found
