"""Run knobs: how a run computes, never what; by type they cannot enter a key."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from curvflow.schemas.cluster import Cluster


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
    compiler: Literal["none", "default", "reduce-overhead"] = Field(
        "none",
        description="mode of torch.compile for training; reduce-overhead replays CUDA "
        "graphs on a GPU; none computes call by call",
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
    workers: int | None = Field(
        None,
        ge=1,
        description="processes of this machine that compute tiles; 1 is this one; None "
        "chooses by cores or GPUs and the number of tiles",
    )
    scheduler: str | None = Field(
        None,
        pattern=r"^(tcp|tls|wss?)://(\[[\w:.%]+\]|[^\s:/\[\]]+):\d{1,5}$",
        description="address of a Dask scheduler whose workers compute the tiles",
    )
    cluster: Cluster | None = Field(
        None, description="a Dask cluster to be started for the run"
    )
    dashboard: bool = Field(False, description="serve Dask's page while computing")

    @model_validator(mode="after")
    def _one_place(self) -> RunOptions:
        given = [
            f"--{name}"
            for name in ("workers", "scheduler", "cluster")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise ValueError(
                f"expected one of --workers, --scheduler and --cluster, got "
                f"{' and '.join(given)}"
            )
        return self
