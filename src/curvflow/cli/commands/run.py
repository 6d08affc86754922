"""`curvflow run`: compute the results of a study that the store lacks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from curvflow.cli import run_options as options
from curvflow.cli.arguments import (
    AsJson,
    MaxNodes,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
    print_json,
    same_study,
    study_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from curvflow.flows.results.results import Results

INTERRUPTED = "curvflow: interrupted; finished tiles are kept, run again to go on"


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    device: options.Device = "auto",
    threads: options.Threads = 1,
    tile_memory: options.TileMemory = 1.0,
    compiler: options.Compiler = "none",
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    cluster: options.ClusterFile = None,
    dashboard: options.Dashboard = False,
    observe: options.Observe = None,
    partial: options.PartialResults = False,
    no_record_reads: options.NoRecordReads = False,
    revive: options.Revive = None,
    accept: options.Accept = None,
    reason: options.Reason = "",
    verify: options.Verify = None,
    rerun: options.Rerun = None,
    reanalyse: options.Reanalyse = False,
    log: options.LogPath = None,
    as_json: AsJson = False,
) -> None:
    """Compute the results of the study that the store lacks."""
    tile = {"device": device, "num_threads": threads, "compiler": compiler}
    place = {"workers": workers, "scheduler": scheduler, "dashboard": dashboard}
    record = {"record_reads": not no_record_reads, "partial": partial}
    chosen = study_options(store, profile, overrides, max_nodes)
    asked = {
        "options": options.read_run_options(
            cluster=cluster, tile_memory=tile_memory, **tile, **place, **record
        ),
        "answer": options.code_answer(accept or (), rerun or (), reason, verify),
        "revive": revive or (),
    }
    results = _compute(study, observe, log, reanalyse=reanalyse, **chosen, **asked)
    _echo_results(f"{quote(str(study))}{same_study(chosen)}", results, as_json)


def _compute(
    study: Path, observe: bool | None, log: Path | None, **arguments: Any
) -> Results:
    """Run the study, show its progress, and keep its log."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.cli.text.progress import watch

    with _report_interruption(), watch(log) as observer:
        return _run_function(observe)(study, observer=observer, **arguments)


def _run_function(observe: bool | None) -> Callable[..., Results]:
    """Return the function that runs a study; only an observed run loads Prefect."""
    if observe is None:
        observe = bool(os.environ.get("PREFECT_API_URL"))
    if observe:
        from curvflow.flows.deployed.observed import run_observed

        return run_observed
    from curvflow.flows.api import run

    return run


@contextmanager
def _report_interruption() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stopped:
        # Caught here, since typer would end the command without a message.
        echo(INTERRUPTED, err=True)
        raise typer.Exit(128 + getattr(stopped, "signal", signal.SIGINT)) from None


def _echo_results(study: str, results: Results, as_json: bool) -> None:
    from curvflow.cli.text.plan_text import run_summary
    from curvflow.flows.results.convergence_counts import verdicts_json
    from curvflow.flows.run.run import run_json

    assert results.run is not None
    judged = {stage: counts for stage in results if (counts := results.verdicts(stage))}
    lacking = {s: lines for s in results if (lines := results.made_without(s))}
    if as_json:
        result = run_json(results.run) | verdicts_json(judged)
        print_json(result | {"made_without": lacking})
    else:
        echo(run_summary(study, results, judged, lacking))
    if results.run.failures:
        raise typer.Exit(1)
