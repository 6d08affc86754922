"""Run a study in this process with a flow run of Prefect's to watch it by."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.flows.api import run
from curvflow.flows.deployed.messages import lost
from curvflow.flows.results.results import Results
from curvflow.flows.run.observer import Observer
from curvflow.schemas.options import RunOptions

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import State

# A person waits for the command, and is not to be kept waiting by a server that is ill;
# but a busy one asks to be asked again.
HURRIED = {
    "api.request_timeout": 10.0,
    "client.max_retries": 2,
    "flows.heartbeat_frequency": None,
}
SECONDS_TO_ANSWER = 4.0


def observed(study: str | Path, *, observer: Observer, **asked: Any) -> Results:
    """Run a study as `flows.api.run` does, with a page of its own under Prefect.

    If no server answers within seconds, one warning says so and the study runs
    without a page; if it falls silent later, the study goes on.

    Args:
        study: path of the study file.
        observer: who watches besides.
        asked: what else `flows.api.run` takes.

    Returns:
        The results.

    Raises:
        RequestError: the study asks for something that cannot be done.
        StoreError: results cannot be written.
        Stopped: the run was asked to end.
    """
    if why := _silence():
        observer.warn(f"{why}; the study runs without a page")
        return run(study, observer=observer, **asked)
    return _Science(study, observer, asked).observed()


def _silence() -> str:
    """Return why no server can be told anything; empty if one answers."""
    try:
        from prefect.client.orchestration import get_client
        from prefect.settings import get_current_settings

        url = get_current_settings().api.url
        if not url:
            return "PREFECT_API_URL: expected the address of a Prefect server, got none"
        patience = {"timeout": SECONDS_TO_ANSWER}
        client = get_client(httpx_settings=patience, sync_client=True)
        failure = client.api_healthcheck()
    except Exception as error:  # its settings may be wrong in any way
        return f"Prefect: expected to load it, got {type(error).__name__}"
    return f"{url}: expected a Prefect server, got no answer" * bool(failure)


class _Science:
    """One run of a study, which outlives whatever happens to its page."""

    def __init__(
        self, study: str | Path, observer: Observer, asked: dict[str, Any]
    ) -> None:
        self._study, self._observer, self._asked = study, observer, asked
        self._results: Results | None = None
        self._error: BaseException | None = None
        self._is_lost = False
        self._patience = ExitStack()

    def observed(self) -> Results:
        try:
            with self._patience:
                self._hurry(HURRIED)
                self._flow()(**self._parameters(), return_state=True)
        except Exception as error:  # of Prefect's, since those of the study are kept
            self._lose(" ".join(str(error).split()) or type(error).__name__)
        if self._results is None and self._error is None:
            self._lose("it did not begin a flow run")
            return run(self._study, observer=self._observer, **self._asked)
        if self._error is not None:
            raise self._error
        assert self._results is not None
        return self._results

    def _hurry(self, how: dict[str, Any]) -> None:
        from prefect.settings import temporary_settings

        self._patience.enter_context(temporary_settings(updates=how))

    def _flow(self) -> Flow[..., Any]:
        """Return the flow that workers run, but for where its parameters go."""
        from curvflow.flows.deployed.ending import ended
        from curvflow.flows.deployed.study import run_study

        @wraps(run_study.fn)
        def body(**_: Any) -> State[Any]:
            state = ended(self._run, self._observer, lost=self._lose)
            if self._is_lost:  # nobody will hear of the end either
                self._hurry({"client.max_retries": 0})
            return state

        flow: Flow[..., Any] = copy(run_study)
        flow.fn = body
        flow.should_validate_parameters = False  # they are what `run` was asked for
        return flow

    def _parameters(self) -> dict[str, Any]:
        """Return what was asked for as the flow's parameters."""
        options, store = (
            self._asked.get("options") or RunOptions(),
            self._asked.get("store"),
        )
        return {
            "study": str(self._study),
            "project": str(Path.cwd()),
            "store": None if store is None else str(store),
            "profile": self._asked.get("profile"),
            "overrides": list(self._asked.get("overrides", ())),
            "device": options.device,
            "num_threads": options.num_threads,
            "workers": options.workers,
            "scheduler": options.scheduler,
            "reanalyse": bool(self._asked.get("reanalyse")),
            "revive": list(self._asked.get("revive", ())),
        }

    def _run(self, observer: Observer) -> Results:
        try:
            self._results = run(self._study, observer=observer, **self._asked)
        except BaseException as error:
            self._error = error
            raise
        return self._results

    def _lose(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._observer.warn(lost(why))
