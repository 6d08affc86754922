"""Run a study within a flow run, and return the flow run's final state."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect import runtime
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from curvflow.errors import CurvflowError, Stopped
from curvflow.flows.deployed.messages import Messages
from curvflow.flows.deployed.observer import PageObserver
from curvflow.flows.deployed.run_page import Page
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import Observer
from curvflow.flows.run.tracebacks import portable, portable_traceback
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
