"""The flow that runs a study, for schedules, workers and Prefect's form."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from prefect import flow, runtime
from prefect.client.schemas.objects import State
from prefect.settings import temporary_settings

from curvflow.errors import CurvflowError
from curvflow.flows.api import run
from curvflow.flows.deployed.final_state import run_to_state
from curvflow.flows.deployed.messages import lost_message
from curvflow.flows.deployed.quiet import hush
from curvflow.flows.deployed.spec import FLOW
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import Observer, Unwatched
from curvflow.schemas.options import Count, run_options

# Holds for as long as the process, which ends with its flow run.
PATIENCE = ExitStack()


def run_name() -> str:
    """Name a flow run after its study and profile."""
    parameters = runtime.flow_run.parameters
    path, profile = (
        Path(parameters["project"], parameters["study"]),
        parameters.get("profile"),
    )
    try:
        name = open_study(path, profile=profile).study.name
    except CurvflowError:  # the flow will report it
        name = path.stem
    return f"{name}-{profile}" if profile else name


@flow(
    name=FLOW,
    flow_run_name=run_name,
    retries=0,
    persist_result=False,
    log_prints=False,
)
def run_study(
    study: str,
    *,
    project: str = ".",
    store: str | None = None,
    profile: str | None = None,
    overrides: list[str] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    num_threads: Count = 1,
    workers: Count | None = None,
    scheduler: str | None = None,
    reanalyse: bool = False,
    revive: list[str] | None = None,
    max_nodes: Count | None = None,
) -> State[Any]:
    """Compute the results of a study that its store does not hold.

    Args:
        study: the study file, relative to the project.
        project: folder that paths are relative to.
        store: its address, relative to the project; `.curvflow` next to the study
            file by default.
        profile: named overrides of the study.
        overrides: `a.b=c` each, applied last.
        device: that computes.
        num_threads: CPU threads of one tile; 1 unless networks are large.
        workers: processes that compute tiles; 1 is the flow run's own.
        scheduler: address of a Dask scheduler whose workers compute the tiles.
        reanalyse: tables, figures and expectations alone, from existing results.
        revive: stages whose arrays must be there, though collection removed them.
        max_nodes: nodes beyond which the study is refused; ten million by default.

    Returns:
        The final state, with the counts in its message.
    """
    hush()

    def compute(observer: Observer) -> Results:
        machine: dict[str, Any] = {"device": device, "num_threads": num_threads}
        workplaces: dict[str, Any] = {"workers": workers, "scheduler": scheduler}
        return run(
            Path(project, study),
            store=_place(store, Path(project)),
            profile=profile,
            overrides=overrides or (),
            options=run_options(**machine, **workplaces),
            revive=revive or (),
            reanalyse=reanalyse,
            max_nodes=max_nodes,
            observer=observer,
        )

    reasons: list[str] = []

    def lose(reason: str) -> None:
        reasons.append(reason)
        logging.getLogger("curvflow").warning(lost_message(reason))

    state = run_to_state(compute, Unwatched(), on_lost=lose)
    if reasons:  # the end cannot be reported either, so do not retry
        PATIENCE.enter_context(temporary_settings(updates={"client.max_retries": 0}))
    return state


def _place(store: str | None, project: Path) -> str | Path | None:
    if store is None or "://" in store:
        return store
    return project / Path(store).expanduser()
