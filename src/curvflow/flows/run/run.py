"""Run a study: the main path, on one screen."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from curvflow.flows.graph.files import SourceFiles
from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping, stopping
from curvflow.flows.graph.tiles import count_tiles
from curvflow.flows.plan.code.drift import find_drifts
from curvflow.flows.plan.code.imported import bring_in
from curvflow.flows.plan.plan import Plan, make_plan, refuse_computing
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.results.node_results import plan_views, run_tables
from curvflow.flows.run.observer import Observer, Tally, Unwatched
from curvflow.flows.run.runners.inline import main_memory
from curvflow.flows.run.runners.open import open_runner
from curvflow.flows.run.settle import Answer, refuse, settle
from curvflow.flows.run.tile.snapshots import Partials
from curvflow.flows.run.work import Work
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.study.study import Study
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine

QUICK = 20.0  # seconds of computing that other processes would not shorten
LIBRARIES = ("curvflow", "torch", "numpy", "scipy", "zarr", "scikit-learn")


@dataclass(frozen=True)
class RunReport:
    """What a run did.

    Attributes:
        record: as the store keeps it.
        plan: the nodes, each with what became of it.
        revived: per stage the number of results that were computed again after
            collection, their digests being equal; 0 if that was asked for in vain.
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
    """Compute what a study asks for and a store does not hold.

    Args:
        study: the resolved study.
        store: results are taken from it and added to it.
        files: files that parameters name.
        options: how to compute.
        revive: stages whose results must be there, though collection removed them.
        answer: what changed code means; None if nothing is said.
        reanalyse: make tables and figures alone, of results that are there.
        observer: who watches.

    Returns:
        What was done; failed nodes are reported, not raised.

    Raises:
        RequestError: the study asks for something that cannot be done.
        ChangedCodeError: code has changed under an unchanged version.
        StoreError: results cannot be written.
        Stopped: the run was asked to end.
    """
    options, observer = options or RunOptions(), observer or Unwatched()
    started = time.perf_counter()
    plan = _planned(study, store, files, revive, answer, options, observer)
    check = _analyse_alone if reanalyse else bring_in_code
    tally = Tally(plan.graph)
    if all(node.state == "cached" for node in plan.graph):
        run = _begun(study, store, options)
        observer.begin(plan)
        observer.end()
    else:
        run = _carried_out(plan, store, files, options, observer, tally, check)
    record = _ended(plan, run, store, tally, time.perf_counter() - started)
    return RunReport(record, plan, _revived(plan, revive, tally))


def _begun(study: Study, store: Store, options: RunOptions) -> RunRecord:
    return store.begin_run(
        study.name,
        document=study.document,
        environment=environment(),
        options=options.model_dump(),
    )


def _carried_out(
    plan: Plan,
    store: Store,
    files: SourceFiles,
    options: RunOptions,
    observer: Observer,
    tally: Tally,
    check: Callable[[Plan], None],
) -> RunRecord:
    """Compute what a plan left open; return the record of the run as it began."""
    check(plan)
    stop, tell = Stopping(), observer.tell
    partials = Partials(store, stop, tell=tell)
    tiles = _tiles(plan)
    opening = open_runner(plan, store, options, files.folder, partials, tiles, tell)
    with stopping(stop), opening as runner_of:
        run = _begun(plan.graph.study, store, options)
        observer.begin(plan)
        try:
            with beating(store, run, stop, silence=options.silence):
                store.append_event(run, {"event": "plan", "payloads": payloads(plan)})
                work = Work(plan, run, store, files, options, observer, tally, stop)
                work.do(runner_of(run), check)
                _tell_of_other_code(plan, store, observer)
        finally:
            observer.end()
    return run


def _tiles(plan: Plan) -> int:
    """Count what other processes could share; 1 if it is done before they are there."""
    todo = [node for node in plan.graph if node.state != "cached"]
    told = Costs(plan.graph, plan.index).predicted(todo)
    if not told.unknown and told.seconds < QUICK:
        return 1
    return sum(count_tiles(nodes) for nodes in plan.graph.nodes.values())


def _ended(
    plan: Plan, run: RunRecord, store: Store, tally: Tally, seconds: float
) -> RunRecord:
    failures = tally.failure_records()
    return store.end_run(
        run,
        seconds=seconds,
        counts=_counts(plan, tally, failures),
        failures=failures,
        tables=run_tables(plan_views(plan, failures), store.index()),
    )


def _revived(plan: Plan, asked: Collection[str], tally: Tally) -> dict[str, int]:
    in_vain = [
        stage
        for stage in asked
        if not any(node.revive for node in plan.graph.nodes[stage])
    ]
    return dict.fromkeys(in_vain, 0) | +tally.revived


def _planned(
    study: Study,
    store: Store,
    files: SourceFiles,
    revive: Collection[str],
    answer: Answer | None,
    options: RunOptions,
    observer: Observer,
) -> Plan:
    """Plan the study, and settle what is to become of changed code."""
    plan = make_plan(study, store, files, revive=revive)
    if plan.drifts or answer is not None:
        said = answer or Answer()
        tell, machine = observer.tell, partial(_ready, plan, options)
        if settle(plan, said, store=store, files=files, machine=machine, tell=tell):
            plan = make_plan(study, store, files, revive=revive)
            refuse(plan.drifts)
    return plan


def _tell_of_other_code(plan: Plan, store: Store, observer: Observer) -> None:
    """Warn of results that turned out to be there already, but of other code.

    What waited when the plan was made could not be compared then.
    """
    index = store.index()
    plan.drifts = find_drifts(plan.graph, index, plan.codes, Costs(plan.graph, index))
    for drift in plan.drifts:
        observer.warn(
            f"{drift.kind}: {len(drift.nodes)} nodes had results of other code under "
            f"version {drift.version}; the next run asks what that means"
        )


def _ready(
    plan: Plan, options: RunOptions
) -> tuple[Machine, AbstractContextManager[None]]:
    """Return where results are computed again to settle what changed code means."""
    # Loaded here because a run without news saves the second that torch takes.
    from curvflow.tasks.machine import machine_for, threads

    machine = machine_for(
        options.device, options.num_threads, options.compiler, main_memory()
    )
    bring_in_code(plan)
    return machine, threads(options.num_threads)


def _analyse_alone(plan: Plan) -> None:
    refuse_computing(plan)
    bring_in_code(plan)


def bring_in_code(plan: Plan) -> None:
    """Import what the nodes reach; from here on files may be edited.

    Args:
        plan: of whose code all is told.

    Raises:
        RequestError: a file has changed since its module was imported.
    """
    plan.codes.read(plan.graph)
    open_nodes = [node for node in plan.graph if node.state != "cached"]
    compared = [node for drift in plan.drifts for node in drift.nodes]
    bring_in(plan.codes, [*open_nodes, *compared])


def payloads(plan: Plan) -> list[str]:
    """Return the payloads that a plan relies on, for collection to leave alone."""
    receipts = (node.receipt for node in plan.graph)
    return sorted({one.payload for one in receipts if one and one.payload})


def _counts(
    plan: Plan, tally: Tally, failures: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, int]]:
    """Count per stage what was executed, found, failed, and what diverged."""
    failed = Counter(failure["stage"] for failure in failures)
    done = {stage: plan.counts(stage)["cached"] for stage in plan.graph.nodes}
    diverged = Counter(
        node.stage
        for node in plan.graph
        if node.receipt is not None and node.receipt.status == "diverged"
    )
    return {
        "executed": {stage: tally.executed[stage] for stage in done},
        "cached": {stage: n - tally.executed[stage] for stage, n in done.items()},
        "failed": {stage: failed[stage] for stage in done},
        "diverged": {stage: diverged[stage] for stage in done},
    }


def environment() -> Mapping[str, str]:
    """Return versions of Python and the libraries, and the platform; never keys."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return found
