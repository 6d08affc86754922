"""The Python interface to studies: `curvflow.run` and `curvflow.open`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curvflow.errors import (
    ChangedCodeError,
    CorruptPayloadError,
    RemovedPayloadError,
    UnknownNameError,
)
from curvflow.flows.graph.open_study import (
    OpenedStudy,
    make_importable,
    namesakes,
    open_study,
    opened_in,
    with_max_nodes,
)
from curvflow.flows.graph.python_study import Study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.results.node_results import (
    plan_views,
    run_views,
    standing_views,
    with_removed,
)
from curvflow.flows.results.outputs import write_outputs
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import InNotebook, Observer, notebook_observer
from curvflow.flows.run.run import run_study
from curvflow.flows.run.settle import Answer
from curvflow.schemas.options import RunOptions, run_options
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.base import Store

IN_PYTHON = (
    'In Python: curvflow.run(..., answer=curvflow.Answer(accept=[KIND], reason="...")) '
    "or answer=curvflow.Answer(rerun=[KIND])."
)


def run(
    study: str | Path | Study,
    *,
    store: str | Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    options: RunOptions | None = None,
    workers: int | None = None,
    revive: Sequence[str] = (),
    answer: Answer | None = None,
    reanalyse: bool = False,
    max_nodes: int | None = None,
    observer: Observer | None = None,
) -> Results:
    """Run a study and return its results.

    Args:
        study: path of the study file, or a study built in Python.
        store: where results are; by default `.curvflow` beside the study file, or in
            the current folder for a study built in Python.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        options: how to compute.
        workers: processes of this machine that compute; short for that option alone.
        revive: stages whose arrays must be there, though collection removed them.
        answer: what changed code means; None if nothing is said.
        reanalyse: make tables and figures alone, of results that are there.
        max_nodes: refuse a study of more nodes; by default of ten million.
        observer: who watches; by default a notebook shows progress under the cell, and
            nothing is shown elsewhere.

    Returns:
        The results; `results.run.failures` lists the nodes that failed.

    Raises:
        RequestError: the study requests something that cannot be done.
        StoreError: results cannot be written.

    Examples:
        >>> import curvflow
        >>> matrix = {"use": "data.random_matrix", "size": 3}
        >>> trace = {"use": "probe.trace", "matrix": "matrix", "num_probes": 4}
        >>> study = curvflow.Study(stages={"matrix": matrix, "trace": trace})
        >>> results = curvflow.run(study, store="memory:")
        >>> results.run.counts["executed"]
        {'matrix': 1, 'trace': 1}
    """
    # The first write makes the store, so that what is refused leaves none behind.
    opened = _opened(study, store, profile, overrides, max_nodes)
    if workers is not None:
        given = {} if options is None else options.model_dump(exclude_unset=True)
        options = run_options(**{**given, "workers": workers})
    asked: dict[str, Any] = {
        "options": options,
        "revive": revive,
        "reanalyse": reanalyse,
        "observer": observer or notebook_observer(),
    }
    if not isinstance(study, Study):
        _tell_of_namesakes(Path(study), opened, asked["observer"])
    try:
        return _run(opened, answer=answer, **asked)
    except (CorruptPayloadError, RemovedPayloadError):
        # A table or figure was found unreadable while it was written out. It is struck
        # off by now, or collected since the plan: this time it is computed again.
        return _run(opened, **asked)


def _tell_of_namesakes(
    study: Path, opened: OpenedStudy, observer: Observer | None
) -> None:
    """Say so where another study of the folder has the name, and so the same files."""
    name = opened.study.name
    if others := namesakes(study, name):
        tell = observer.tell if observer else logging.getLogger("curvflow").warning
        tell(
            f"expected one study of a name in a folder, got {name} in "
            f"{' and '.join(others)} too, so that each overwrites the other's "
            f"{opened.folder.parent.name}/{name}. Give each a name of its own."
        )


def _opened(
    study: str | Path | Study,
    store: str | Path | None,
    profile: str | None,
    overrides: Sequence[str],
    max_nodes: int | None,
) -> OpenedStudy:
    """Open a study of a file, or one built in Python, which has the current folder."""
    if not isinstance(study, Study):
        return open_study(
            study,
            store=store,
            profile=profile,
            overrides=overrides,
            max_nodes=max_nodes,
        )
    folder = Path.cwd()
    make_importable(folder)
    bounded = with_max_nodes(study.connected(profile, overrides), max_nodes)
    return opened_in(folder, bounded, store=store)


def _run(opened: OpenedStudy, *, observer: Observer | None, **asked: Any) -> Results:
    try:
        report = run_study(
            opened.study, opened.store, opened.files, observer=observer, **asked
        )
    except ChangedCodeError as error:
        error.add_note(IN_PYTHON)  # the message has the words of the command line
        raise
    if report.record.failures and (
        observer is None or isinstance(observer, InNotebook)
    ):
        message = "%d nodes failed; results.run.failures holds their tracebacks"
        logging.getLogger("curvflow").warning(message, len(report.record.failures))
    views = plan_views(report.plan, report.record.failures)
    written = write_outputs(views, opened.store, opened.folder)
    shown = with_removed(views, opened.store)
    return Results(
        opened.study.name,
        shown,
        opened.store,
        report.record,
        written,
        report.revived,
    )


def open(
    study: str | Path | Study,
    *,
    run: int | None = None,
    store: str | Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    max_nodes: int | None = None,
) -> Results:
    """Open the results of a study, computing nothing.

    Args:
        study: path of the study file, or a study built in Python.
        run: number of the run to go back to; None for the study as it stands.
        store: where results are, as for `run`.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        max_nodes: refuse a study of more nodes; by default of ten million.

    Returns:
        The results; nodes that have none are marked `missing`, those whose arrays
        collection has removed `removed`.

    Raises:
        RequestError: the study cannot be read, or has no such run.

    Examples:
        >>> import curvflow
        >>> matrix = {"use": "data.random_matrix", "size": 3}
        >>> trace = {"use": "probe.trace", "matrix": "matrix", "num_probes": 4}
        >>> study = curvflow.Study(stages={"matrix": matrix, "trace": trace})
        >>> _ = curvflow.run(study, store="kept")
        >>> curvflow.open(study, store="kept")
        <Results of study: matrix, trace>
    """
    opened = _opened(study, store, profile, overrides, max_nodes)
    return results_of(opened, run)


def results_of(opened: OpenedStudy, run: int | None = None) -> Results:
    """Return a study's results, as it stands or as of one of its runs.

    Args:
        opened: the study and its store.
        run: number of the run.

    Returns:
        The results.

    Raises:
        RequestError: the study has no such run.
    """
    name, store = opened.study.name, opened.store
    if run is None:
        plan = make_plan(opened.study, store, opened.files)
        views = standing_views(plan)
        return Results(name, with_removed(views, store), store)
    record = find_run(store, name, run)
    views = run_views(record, store.index())
    return Results(name, with_removed(views, store), store, record)


def find_run(store: Store, study: str, number: int) -> RunRecord:
    """Return one run of a study that has ended.

    Args:
        store: holds the log.
        study: name of the study.
        number: of the run.

    Returns:
        The run's record.

    Raises:
        UnknownNameError: there is no such run, or it was interrupted.
    """
    runs = {run.number: run for run in store.index().runs if run.study == study}
    if number not in runs:
        if not runs:
            raise UnknownNameError(
                f"{study}: expected a finished run, got none. Run the study first."
            )
        raise UnknownNameError(
            f"{study}: expected a run from 1 to {len(runs)}, got {number}. "
            "`curvflow log` lists them."
        )
    if runs[number].ended is None:
        raise UnknownNameError(
            f"{study}: expected a finished run, got run {number}, which was "
            "interrupted and left no table of results. What it finished is part of "
            "later runs: take one of them."
        )
    return runs[number]
