"""The options of `curvflow run`, and their combination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.run.settle import Answer
    from curvflow.schemas.options import RunOptions

Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="where to compute")
]
Threads = Annotated[
    int, typer.Option(min=1, help="CPU threads of one tile; 1 unless nets are large")
]
Compiler = Annotated[
    Literal["none", "default", "reduce-overhead"],
    typer.Option(
        "--compile",
        help="compile training by torch.compile; may pay for long trainings",
    ),
]
TileMemory = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="GIB",
        help="memory of one tile; more trains more networks at once, as a GPU wants",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="processes that compute; 1 is this one "
        "[default: by cores or GPUs, and tiles]",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDR", help="compute on the workers of a Dask scheduler"),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="start the Dask cluster that a file describes"),
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="serve Dask's page while computing")
]
Observe = Annotated[
    bool | None,
    typer.Option(
        "--observe/--no-observe",
        help="report progress to Prefect [default: if PREFECT_API_URL is set]",
    ),
]
Revive = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="recompute what `gc` removed of this stage; repeatable",
    ),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-code",
        metavar="KIND",
        help="its changed code means the same; needs --reason; repeatable",
    ),
]
Reason = Annotated[str, typer.Option(help="why the code means the same")]
Verify = Annotated[
    str | None,
    typer.Option(
        metavar="2%",
        help="before accepting code, compute this share again and compare",
    ),
]
Rerun = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND",
        help="compute again its results whose code changed, or all; `changed` for "
        "every kind whose code has; repeatable",
    ),
]


def read_run_options(
    *, cluster: Path | None, tile_memory: float, **given: Any
) -> RunOptions:
    """Return the run options; `tile_memory` is in GiB, `cluster` a cluster file."""
    if not math.isfinite(tile_memory):
        raise RequestError(
            f"--tile-memory: expected a finite number of GiB, got {tile_memory}. "
            "Lower it."
        )
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.run.runners.cluster_file import read_cluster
    from curvflow.schemas.options import run_options

    read = None if cluster is None else read_cluster(cluster)
    tile_bytes = round(tile_memory * (1 << 30))
    return run_options(cluster=read, tile_bytes=tile_bytes, **given)


def code_answer(
    accept: Sequence[str], rerun: Sequence[str], reason: str, verify: str | None
) -> Answer | None:
    """Return the answer to code drift, None without options about it."""
    from curvflow.flows.run.settle import Answer

    if not accept and (verify is not None or (reason and not rerun)):
        option = "--reason" if verify is None else "--verify"
        raise RequestError(
            f"{option}: expected --accept-code KIND with it, got none. Name the kind."
        )
    if not accept and not rerun:
        return None
    return Answer(accept, rerun, reason, None if verify is None else _share(verify))


def _share(text: str) -> float:
    """Read a share such as `2%` or `0.02`."""
    number = text.removesuffix("%")
    with suppress(ValueError):
        share = float(number) / (1 if number == text else 100)
        if 0 < share <= 1:
            return share
    raise RequestError(
        f"--verify: expected a share above 0% and at most 100%, got '{text}'. Write "
        "one such as 2%."
    )


LogPath = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="append progress to a file, a line a minute, and all that is said",
    ),
]
PartialResults = Annotated[
    bool,
    typer.Option(
        "--partial",
        help="make tables and figures without the nodes that fail, which they count",
    ),
]
NoRecordReads = Annotated[
    bool,
    typer.Option(
        "--no-record-reads",
        help="do not record the files and variables that code of yours reads",
    ),
]
Reanalyse = Annotated[
    bool,
    typer.Option("--reanalyse", help="tables and figures only, from existing results"),
]
