"""How Lanczos is run from random vectors, for every probe that reads its Ritz data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.operators import OperatorParams


class LanczosParams(OperatorParams):
    """How many runs, how long, and from which vectors."""

    num_runs: int = Field(
        10,
        ge=1,
        description="runs from random vectors; of a single one no standard error is "
        "known",
    )
    num_steps: int = Field(
        100, ge=1, description="products per run; a run ends early where it is exact"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of the entries of the first vectors"
    )
