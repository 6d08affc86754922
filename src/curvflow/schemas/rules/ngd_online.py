"""Online natural gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class NgdOnline(Rule):
    """Steps of SGD's length, turned axis by axis by running moments of the gradient."""

    rule: Literal["ngd_online"] = "ngd_online"
    lr: float = Field(gt=0, description="learning rate")
    alpha: float = Field(
        4.0, gt=0, description="damping, multiple of the mean eigenvalue"
    )
    share: float = Field(
        0.1, gt=0, lt=1, description="weight of the newest gradient in the moments"
    )
    rank: int = Field(80, ge=1, description="most directions that an axis tells apart")
    period: int = Field(
        4, ge=1, description="steps between updates of the moments, after the tenth"
    )
    delta: float = Field(
        5e-4, ge=0, lt=1, description="least eigenvalue as a share of the largest"
    )
    eps: float = Field(
        1e-10,
        gt=0,
        description="least eigenvalue, and trace that damping is taken from",
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the moments of all axes hold, before and after an update."""
        sizes = [size for shape in shapes for size in shape if size > 1]
        ranks = [self.rank_of(size) for size in sizes]
        return 2 * sum(r * (d + r) for r, d in zip(ranks, sizes, strict=True))

    def rank_of(self, size: int) -> int:
        """Return how many directions an axis of some size tells apart."""
        return min((size + 1) // 2, self.rank)


RULE = NgdOnline
