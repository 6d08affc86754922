"""Intervals of the traces of diagonal blocks, which few signs may not show.

Further letters: L blocks of the dimension D.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import EQUAL, pairs_differ, spread_tells
from curvflow.tasks.numerics.estimators.intervals import interval_of_draws


class BlockDraws(Protocol):
    """Draws of the traces of L blocks, (L, S), and their errors, (L,)."""

    @property
    def draws(self) -> Tensor: ...  # noqa: D102

    @property
    def layer_sem(self) -> Tensor: ...  # noqa: D102

    @property
    def layer_vectors(self) -> Tensor: ...  # noqa: D102 -- the part by vectors

    @property
    def num_vectors(self) -> int: ...  # noqa: D102 -- that see two dimensions apart


def layer_intervals(
    of: BlockDraws, size: int, distribution: str
) -> tuple[Tensor, Tensor]:
    """Return intervals of 95 % of the traces of blocks, by the spread of their draws.

    Where one coupling is all that a block has, few signs may all see it with one sign:
    their draws agree and are all wrong. So there is none, NaN, where the spread of
    signs does not show the error, and where too few of them agree.

    Args:
        of: draws and their errors.
        size: D, all blocks together.
        distribution: `rademacher` or `gaussian`.

    Returns:
        Lower and upper ends, (L,) each.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, traces
        >>> from curvflow.tasks.numerics.estimators.layer_intervals import (
        ...     layer_intervals,
        ... )
        >>> A = torch.tensor([[1.0, 0.5], [0.5, 1.0]]).double()
        >>> given = {"method": "hutchinson", "distribution": "rademacher", "block": 8}
        >>> (few,) = traces(Dense(A), [2], [0], num_probes=4, **given)
        >>> (many,) = traces(Dense(A), [2], [0], num_probes=64, **given)
        >>> few_low, _ = layer_intervals(few, 2, "rademacher")
        >>> low, high = layer_intervals(many, 2, "rademacher")
        >>> few_low.tolist(), bool(low < 2), bool(high > 2)
        ([nan], True, True)
    """
    low_L, high_L = interval_of_draws(of.draws, of.layer_sem)
    if distribution != "rademacher":
        return low_L, high_L
    is_hidden_L = torch.full_like(low_L, False, dtype=torch.bool)
    if not spread_tells(size, of.num_vectors):
        is_hidden_L = ~is_hidden_L
    elif not pairs_differ(size, of.num_vectors):
        is_hidden_L = of.layer_vectors <= EQUAL * of.draws.mean(1).abs()
    hide = (end_L.masked_fill(is_hidden_L, torch.nan) for end_L in (low_L, high_L))
    return next(hide), next(hide)
