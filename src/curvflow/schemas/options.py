"""Run options of commands, forms and files; they cannot enter a key."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from curvflow.errors import RequestError
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.validation_messages import Problem, find_problems
from curvflow.schemas.study.yaml_source import Path, dotted_path


class Adapt(BaseModel):
    """Bounds of an adaptive cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: int = Field(0, ge=0, description="number of workers that stay idle")
    maximum: int = Field(ge=1, description="largest number of workers")

    @model_validator(mode="after")
    def _ordered(self) -> Adapt:
        if self.minimum > self.maximum:
            raise ValueError(
                f"expected minimum at most maximum, got {self.minimum} above "
                f"{self.maximum}. Swap them."
            )
        return self


class Cluster(BaseModel):
    """A cluster to start: any class or function that makes a Dask cluster."""

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
            raise ValueError(
                "'workers' cannot be combined with 'adapt'. Remove one of them."
            )
        return self


class RunOptions(BaseModel):
    """Options of a run: device, threads, memory, workers; recorded with the run.

    Examples:
        >>> import curvflow
        >>> curvflow.RunOptions(num_threads=2).device
        'auto'
    """

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
        description="seconds without a heartbeat after which the work that another "
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
    partial: bool = Field(
        False,
        description="make tables and figures of what is there where some of the "
        "results that they reduce failed; they count these",
    )
    record_reads: bool = Field(
        True, description="record the files and variables that code of yours reads"
    )

    @model_validator(mode="after")
    def _one_place(self) -> RunOptions:
        given = [
            f"--{name}"
            for name in ("workers", "scheduler", "cluster")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            first, *others = given
            raise ValueError(
                f"{first} cannot be combined with {' and '.join(others)}. Choose one."
            )
        return self


def run_options(**given: Any) -> RunOptions:
    """Return the options of a run; raise RequestError with the command's option."""
    try:
        return RunOptions(**given)
    except ValidationError as error:
        first = find_problems(error, RunOptions, given)[0]
    raise RequestError(_option_message(first))


def _option_message(complaint: Problem) -> str:
    words = complaint.wording
    if complaint.path == ("scheduler",):
        return (
            f"--scheduler: expected an address such as tcp://127.0.0.1:8786, got "
            f"{words.got}. `dask scheduler` prints the one it has."
        )
    where = f"--{dotted_path(complaint.path)}: " if complaint.path else ""
    return f"{where}{words.message}. {words.hint or 'Choose one.'}"


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], document: Document, path: Path) -> M:
    """Read the part of a file at a path as a model; raise StudyError at its place."""
    written = document.at(path)
    assert written is not None
    value = written.plain()
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        # A misspelt key explains a missing one.
        first = min(
            find_problems(error, model, value), key=lambda problem: problem.missing
        )
        words, full = first.wording, (*path, *first.path)
        raise document.error(full, words.message, words.hint, key=first.key) from None


Count = Annotated[int, Field(ge=1)]


KeepRuns = Annotated[int, Field(ge=0, description="finished runs to keep per study")]
GraceMinutes = Annotated[
    float, Field(ge=1, description="minutes for which unfinished files are kept")
]
