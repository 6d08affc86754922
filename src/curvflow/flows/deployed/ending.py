"""Carry out a study within a flow run, and say in which state that ends."""

from __future__ import annotations

import logging
import signal
import traceback
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
from curvflow.flows.run.observer import Observer


def ended(
    study: Callable[[Observer], Results],
    other: Observer,
    *,
    lost: Callable[[str], None],
) -> State[Any]:
    """Carry out a study and write the page of the flow run around it.

    Args:
        study: runs it, watched by the observer it is given.
        other: watches too.
        lost: told, at most once and from any thread, why the page is not written on.

    Returns:
        The state in which the flow run ends, with the counts in its message.
    """
    messages = Messages(lost)
    page = Page(UUID(runtime.flow_run.id), messages)
    observer = PageObserver(page, other)
    is_over = False
    try:
        state = _state(study, observer, page)
        is_over = True
    finally:
        if not is_over:  # an exit by signal, which Prefect tells of itself
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
        told = f"stopped by {name}; what is finished is kept, the next run goes on"
        page.line(told, logging.WARNING)
        return Cancelled(message=told)
    except CurvflowError as error:
        observer.stopped()
        page.line(str(error), logging.ERROR)
        return Failed(message=str(error))
    except Exception as error:  # a fault of a kind or of ours: its page is to tell all
        observer.stopped()
        page.line(traceback.format_exc(), logging.ERROR)
        return Failed(message=f"{type(error).__name__}: {error}")
    told = observer.finished(results)
    assert results.run is not None
    make = Failed if results.run.failures else Completed
    return make(message=told)
