"""Run a study in this process, with a flow run that shows its progress."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.flows.api import run
from curvflow.flows.deployed.messages import lost_message
from curvflow.flows.deployed.server import patience
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import Observer
from curvflow.schemas.options import RunOptions
from curvflow.schemas.words import error_line

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import State

# A person waits for the command, so a server that is ill must not delay it; but a busy
# one asks for retries.
HURRIED = {
    "client.max_retries": 2,
    "flows.heartbeat_frequency": None,
}
SECONDS_TO_ANSWER, SECONDS_A_REQUEST = 4.0, 10.0


def run_observed(study: str | Path, *, observer: Observer, **settings: Any) -> Results:
    """Run a study as `flows.api.run` does, with a page under Prefect.

    If no server answers within seconds, one warning is issued and the study runs
    without a page; if it falls silent later, the study goes on.

    Args:
        study: path of the study file.
        observer: another observer.
        settings: further arguments of `flows.api.run`.

    Returns:
        The results.

    Raises:
        RequestError: the study is invalid or cannot be run.
        StoreError: results cannot be written.
        Stopped: the run was stopped.
    """
    if reason := _silence():
        observer.warn(f"{reason}; the study runs without a page")
        return run(study, observer=observer, **settings)
    return _ObservedStudy(study, observer, settings).run()


def _silence() -> str:
    """Return the reason why no server can be reached; empty if one answers."""
    try:
        from prefect.client.orchestration import get_client
        from prefect.settings import get_current_settings, temporary_settings

        url = get_current_settings().api.url
        if not url:
            return "PREFECT_API_URL: expected the address of a Prefect server, got none"
        settings = {"timeout": patience(SECONDS_TO_ANSWER)}
        # A server that hangs is asked twice at most, not for as long as Prefect would.
        with temporary_settings(updates={"client.max_retries": 1}):
            client = get_client(httpx_settings=settings, sync_client=True)
            failure = client.api_healthcheck()
    except Exception as error:  # its settings may be wrong in any way
        return f"Prefect: expected to load it, got {type(error).__name__}"
    return f"{url}: expected a Prefect server, got no answer" * bool(failure)


class _ObservedStudy:
    """One run of a study, which survives any fault of its page."""

    def __init__(
        self, study: str | Path, observer: Observer, settings: dict[str, Any]
    ) -> None:
        self._study, self._observer, self._settings = study, observer, settings
        self._results: Results | None = None
        self._error: BaseException | None = None
        self._is_lost = False
        self._patience = ExitStack()

    def run(self) -> Results:
        try:
            with self._patience:
                timeout = {"api.request_timeout": patience(SECONDS_A_REQUEST)}
                self._hurry(HURRIED | timeout)
                self._flow()(**self._parameters(), return_state=True)
        except Exception as error:  # Prefect's own; those of the study are kept
            self._lose(error_line(error))
        if self._results is None and self._error is None:
            self._lose("it did not begin a flow run")
            return run(self._study, observer=self._observer, **self._settings)
        if self._error is not None:
            raise self._error
        assert self._results is not None
        return self._results

    def _hurry(self, updates: dict[str, Any]) -> None:
        from prefect.settings import temporary_settings

        self._patience.enter_context(temporary_settings(updates=updates))

    def _flow(self) -> Flow[..., Any]:
        """Return the flow that workers run, with this study as its body."""
        from curvflow.flows.deployed.study import run_study, run_to_state

        @wraps(run_study.fn)
        def body(**_: Any) -> State[Any]:
            state = run_to_state(self._run, self._observer, on_lost=self._lose)
            if self._is_lost:  # the end cannot be reported either
                self._hurry({"client.max_retries": 0})
            return state

        flow: Flow[..., Any] = copy(run_study)
        flow.fn = body
        flow.should_validate_parameters = False  # they are arguments of `run`
        return flow

    def _parameters(self) -> dict[str, Any]:
        """Return the settings as the flow's parameters."""
        options, store = (
            self._settings.get("options") or RunOptions(),
            self._settings.get("store"),
        )
        return {
            "study": str(self._study),
            "project": str(Path.cwd()),
            "store": None if store is None else str(store),
            "profile": self._settings.get("profile"),
            "overrides": list(self._settings.get("overrides", ())),
            "device": options.device,
            "num_threads": options.num_threads,
            "workers": options.workers,
            "scheduler": options.scheduler,
            "reanalyse": bool(self._settings.get("reanalyse")),
            "revive": list(self._settings.get("revive", ())),
            "max_nodes": self._settings.get("max_nodes"),
        }

    def _run(self, observer: Observer) -> Results:
        try:
            self._results = run(self._study, observer=observer, **self._settings)
        # A stop as well is that of the study, and not Prefect's to report.
        except BaseException as error:
            self._error = error
            raise
        return self._results

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._observer.warn(lost_message(reason))
