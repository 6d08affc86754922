"""The Dask cluster that a run starts for itself, as its configuration file says it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator


class Adapt(BaseModel):
    """Bounds of a cluster that grows and shrinks with the work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: int = Field(0, ge=0, description="workers that stay without work")
    maximum: int = Field(ge=1, description="workers at most")

    @model_validator(mode="after")
    def _ordered(self) -> Adapt:
        if self.minimum > self.maximum:
            raise ValueError(
                f"expected minimum at most maximum, got {self.minimum} above "
                f"{self.maximum}"
            )
        return self


class Cluster(BaseModel):
    """How to start a cluster: any class or function that makes a Dask cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    factory: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="`package.module:Name`, such as `dask_jobqueue:SLURMCluster`",
    )
    kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="its keyword arguments"
    )
    workers: int | None = Field(None, ge=1, description="scale to so many workers")
    adapt: Adapt | None = Field(None, description="scale with the work instead")

    @model_validator(mode="after")
    def _one_scale(self) -> Cluster:
        if self.workers is not None and self.adapt is not None:
            raise ValueError("expected workers or adapt, got both")
        return self
