"""Run a study: the main path, on one screen."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.graph.stopping import Stopping, stopping
from curvflow.flows.plan.plan import Plan, check_analysis, check_code
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.results.node_results import plan_views, run_tables
from curvflow.flows.run.context import Counts, Journal, Observer, RunContext, Unwatched
from curvflow.flows.run.runners.open import open_runner
from curvflow.flows.run.settle import Answer, settled_plan, warn_of_drifts
from curvflow.flows.run.work import Work
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.study.study import Study
from curvflow.stores.base import Store

LIBRARIES = ("curvflow", "torch", "numpy", "scipy", "zarr", "scikit-learn")


@dataclass(frozen=True)
class RunReport:
    """The record of a run, and its plan as it ended.

    Attributes:
        record: as the store keeps it.
        plan: the nodes, each with its state after the run.
        revived: per stage the number of results that were computed again after
            collection, their digests being equal; 0 where all were there.
    """

    record: RunRecord
    plan: Plan
    revived: Mapping[str, int]


def run_json(record: RunRecord) -> dict[str, Any]:
    """Return a run's record in the form of `curvflow run --json`."""
    return {
        "study": record.study,
        "run": record.number,
        "seconds": round(record.seconds, 3),
        **record.counts,
    }


def run_study(
    study: Study,
    store: Store,
    files: SourceFiles,
    *,
    options: RunOptions | None = None,
    revive: Collection[str] = (),
    answer: Answer | None = None,
    reanalyse: bool = False,
    observer: Observer | None = None,
) -> RunReport:
    """Compute the results of a study that its store lacks; see `curvflow.run`.

    Failed nodes are reported, not raised.

    Raises:
        RequestError: the study requests something that cannot be done.
        ChangedCodeError: code has changed under an unchanged version.
        StoreError: results cannot be written.
        Stopped: the run was asked to end.
    """
    options, observer = options or RunOptions(), observer or Unwatched()
    started = time.perf_counter()
    plan = settled_plan(
        study, store, files, revive, answer, options=options, tell=observer.tell
    )
    context = RunContext(
        plan,
        store,
        files,
        options,
        observer,
        stop=Stopping(),
        counts=Counts(plan.graph),
        costs=Costs(plan.graph, plan.index),
    )
    if all(node.state == "cached" for node in plan.graph):
        record = _begun(context)
        observer.begin(plan)
        observer.end()
    else:
        record = _computed(context, check_analysis if reanalyse else check_code)
    seconds = time.perf_counter() - started
    record = _ended(context, record, seconds)
    return RunReport(record, plan, context.counts.revived_in(revive))


def _begun(context: RunContext) -> RunRecord:
    study = context.plan.graph.study
    return context.store.begin_run(
        study.name,
        document=study.document,
        environment=environment(),
        options=context.options.model_dump(),
    )


def _computed(context: RunContext, check: Callable[[Plan], None]) -> RunRecord:
    """Compute what a plan left open; return the record of the run as it began."""
    plan, store, stop = context.plan, context.store, context.stop
    check(plan)
    with stopping(stop), open_runner(context) as runner_of:
        record = _begun(context)
        context.observer.begin(plan)
        try:
            with beating(store, record, stop, silence=context.options.silence):
                Journal(store, record).rely_on(plan.graph)
                Work(context, record, runner_of(record)).do(check)
                warn_of_drifts(context)
        finally:
            context.observer.end()
    return record


def _ended(context: RunContext, record: RunRecord, seconds: float) -> RunRecord:
    store, failures = context.store, context.counts.failure_records()
    views = plan_views(context.plan, failures)
    return store.end_run(
        record,
        seconds=seconds,
        counts=context.counts.by_outcome(),
        failures=failures,
        tables=run_tables(views, store.index()),
    )


@cache
def environment() -> Mapping[str, str]:
    """Return the platform, and versions of Python and libraries; not part of keys."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "absent"
    return versions
