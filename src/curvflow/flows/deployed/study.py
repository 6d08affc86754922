"""The flow that runs a study, for schedules and workers, and its final state."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from prefect import flow, runtime
from prefect.client.schemas.objects import State
from prefect.settings import temporary_settings
from prefect.states import Cancelled, Completed, Failed

from curvflow.errors import CurvflowError, Stopped
from curvflow.flows.api import run
from curvflow.flows.deployed.messages import Messages, lost_message
from curvflow.flows.deployed.observer import PageObserver
from curvflow.flows.deployed.quiet import hush
from curvflow.flows.deployed.run_page import Page
from curvflow.flows.deployed.spec import FLOW
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import Observer, Unwatched
from curvflow.flows.run.tracebacks import portable, portable_traceback
from curvflow.schemas.options import Count, run_options
from curvflow.schemas.words import printable


def run_to_state(
    study: Callable[[Observer], Results],
    other: Observer,
    *,
    on_lost: Callable[[str], None],
) -> State[Any]:
    """Run a study, write its page, and return the flow run's final state."""
    messages = Messages(on_lost)
    page = Page(UUID(runtime.flow_run.id), messages)
    observer = PageObserver(page, other)
    is_over = False
    try:
        state = _state(study, observer, page)
        is_over = True
    finally:
        if not is_over:  # an exit by signal, which Prefect reports itself
            observer.stopped()
        messages.close()
    return state


def _state(
    study: Callable[[Observer], Results], observer: PageObserver, page: Page
) -> State[Any]:
    try:
        results = study(observer)
    except Stopped as stopped:
        observer.stopped()
        name = signal.Signals(stopped.signal).name
        message = f"stopped by {name}; finished results are kept, the next run resumes"
        page.line(message, logging.WARNING)
        return Cancelled(message=message)
    except CurvflowError as error:
        observer.stopped()
        page.line(str(error), logging.ERROR)
        return Failed(message=printable(str(error)))
    except Exception as error:  # a fault of a kind or of ours, shown in full
        observer.stopped()
        page.line(portable_traceback(error), logging.ERROR)
        text = portable(f"{type(error).__name__}: {error}")
        return Failed(message=printable(text))
    message = printable(observer.finished(results))
    assert results.run is not None
    make = Failed if results.run.failures else Completed
    return make(message=message)


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
