"""Natural gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Ngd(Rule):
    """Steps by the inverse of the damped Fisher matrix of the batch, solved exactly."""

    rule: Literal["ngd"] = "ngd"
    lr: float = Field(gt=0, description="learning rate")
    alpha: float = Field(
        1.0, gt=0, description="damping, multiple of the mean eigenvalue"
    )
    eps: float = Field(
        1e-10, gt=0, description="least trace that damping is taken from"
    )
    fisher: Literal["sampled", "empirical", "exact"] = Field(
        "sampled",
        description="labels drawn from the model, those of the data, or all of them by "
        "their probability",
    )
    num_samples: int = Field(
        1, ge=1, description="labels drawn for each input if sampled"
    )
    fisher_batch: int | None = Field(
        None,
        ge=1,
        description="samples of the batch that F is built from; null for all",
    )
    norm_match: bool = Field(
        False, description="give the step's direction the length of the gradient"
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the rows of F, and copies of weights to derive them by, hold."""
        samples = min(self.fisher_batch or batch_size, batch_size)
        rows = {"sampled": self.num_samples, "empirical": 1, "exact": outputs}
        return samples * (rows[self.fisher] + 2) * sum(map(prod, shapes))


RULE = Ngd
