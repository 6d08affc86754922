"""Run knobs: how a run computes, never what; by type they cannot enter a key."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RunOptions(BaseModel):
    """How to compute; recorded with the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_threads: int = Field(
        1,
        ge=1,
        description="threads of one tile's CPU operations; more than one pays for "
        "large networks only, and costs dearly on a busy machine",
    )
    tile_bytes: int = Field(
        1 << 30, ge=1 << 20, description="working memory that one tile may use, bytes"
    )
    silence: float = Field(
        60.0,
        gt=0,
        description="seconds without a sign of life after which the work that another "
        "run has claimed is taken over",
    )
