"""Run a study in this process with a flow run of Prefect's to watch it by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.flows.api import run
from curvflow.flows.observer import Observer

if TYPE_CHECKING:
    from curvflow.flows.results import Results


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
    return run(study, observer=observer, **asked)
