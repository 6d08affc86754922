"""Settle changed code before anything is computed with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from curvflow.errors import ChangedCodeError, RequestError, UnknownNameError, nearest
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.code.drift import Drift, find_drifts
from curvflow.flows.plan.code.fingerprints import recorded_loads
from curvflow.flows.plan.plan import Plan, check_code, make_plan
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.compute import main_memory
from curvflow.flows.run.context import RunContext
from curvflow.flows.run.recheck import Evidence, Recheck, sample
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import CodeRecord, Settlement
from curvflow.schemas.study.study import Study
from curvflow.schemas.words import counted, duration
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine

SHOWN = 3  # definitions per kind
CHANGED = "changed"  # in place of a kind: all whose code has changed
REMEDY = (
    "If the results mean something else now, raise the version of the kind. If not, "
    'run again with --accept-code {kind} --reason "..." (--verify 2% compares a '
    "sample first), or with --rerun {rerun}."
)
# Nobody who writes a model or a data set has the version of the kind that calls it.
FUNCTION_REMEDY = (
    "If the results mean something else now, run again with --rerun {rerun}. If not, "
    'with --accept-code {kind} --reason "..." (--verify 2% compares a sample first).'
)


@dataclass(frozen=True)
class Answer:
    """A person's answer to changed code: accept results, or run them again.

    Attributes:
        accept: kinds whose results mean the same as before.
        rerun: kinds whose results are to be computed again; `changed` stands for all
            whose code has changed and that are not accepted.
        reason: why; needed to accept.
        verify: share of the results concerned, above 0 and at most 1, that is computed
            again and compared before they are accepted; None for none.

    Examples:
        >>> import curvflow
        >>> curvflow.Answer(accept=["probe.trace"], reason="a refactor").rerun
        ()
    """

    accept: Collection[str] = ()
    rerun: Collection[str] = ()
    reason: str = ""
    verify: float | None = None


def settled_plan(
    study: Study,
    store: Store,
    files: SourceFiles,
    revive: Collection[str],
    answer: Answer | None,
    *,
    options: RunOptions,
    tell: Callable[[str], None],
) -> Plan:
    """Plan a study, with changed code settled as the answer says.

    Raises:
        RequestError: the study or the answer requests something that cannot be done.
        ChangedCodeError: code has changed, and the answer does not cover it.
    """
    plan = make_plan(study, store, files, revive=revive)
    if plan.drifts or answer is not None:
        machine = partial(_this_process, plan, options)
        settle_now = partial(settle, store=store, files=files, machine=machine)
        if settle_now(plan, answer or Answer(), tell=tell):
            plan = make_plan(study, store, files, revive=revive)
            refuse(plan.drifts)
    return plan


def _this_process(
    plan: Plan, options: RunOptions
) -> tuple[Machine, AbstractContextManager[None]]:
    """Return the machine that results are computed again on, and its setting."""
    # Loaded here because a run without drifts saves the second that torch takes.
    from curvflow.tasks.machine import machine_for, threads

    machine = machine_for(
        options.device, options.num_threads, options.compiler, main_memory()
    )
    check_code(plan)
    return machine, threads(options.num_threads)


def warn_of_drifts(context: RunContext) -> None:
    """Warn of results that turned out to be there already, but of other code.

    Nodes that waited when the plan was made could not be compared then.
    """
    plan, index = context.plan, context.store.index()
    plan.drifts = find_drifts(plan.graph, index, plan.codes, Costs(plan.graph, index))
    for drift in plan.drifts:
        context.observer.warn(
            f"{drift.kind}: {len(drift.nodes)} nodes had results of other code under "
            f"version {drift.version}; the next run asks what that means"
        )


def settle(
    plan: Plan,
    answer: Answer,
    *,
    store: Store,
    files: SourceFiles,
    machine: Callable[[], tuple[Machine, AbstractContextManager[None]]],
    tell: Callable[[str], None],
) -> bool:
    """Carry out a person's answer to the code that a plan found changed.

    Returned is whether the study must be planned again.

    Raises:
        RequestError: no reason is given, a kind is not of this study, or a sample
            comes out different; nothing at all has been settled then.
        ChangedCodeError: the answer does not cover some changed code.
    """
    answer = _checked(plan, answer)
    refuse([d for d in plan.drifts if d.kind not in {*answer.accept, *answer.rerun}])
    drifts = {drift.kind: drift for drift in plan.drifts}
    accepted = [drifts[kind] for kind in dict.fromkeys(answer.accept) if kind in drifts]
    evidence: dict[str, Evidence] = {}
    if accepted and answer.verify is not None:
        device, computing = machine()
        recheck = Recheck(plan, store=store, files=files, machine=device)
        with computing:
            for drift in accepted:
                nodes = sample(plan, drift, answer.verify)
                evidence[drift.kind] = _verified(drift, nodes, recheck, tell)
    if accepted:
        store.record_codes(_codes(plan, accepted))
        store.settle([_settlement(d, answer.reason, evidence) for d in accepted])
    for kind in dict.fromkeys(answer.accept):
        tell(f"{kind}: {_done(drifts.get(kind), evidence.get(kind))}")
    for kind in dict.fromkeys(answer.rerun):
        concerned = drifts[kind].nodes if kind in drifts else _of_kind(plan, kind)
        if keys := {node.receipt.key for node in concerned if node.receipt}:
            reason = f"rerun: {answer.reason or 'asked for'}"
            # Results that another run has computed since the plan are as requested.
            store.retire(sorted(keys), reason, upto=plan.index.number)
    return bool(accepted or answer.rerun)


def refuse(drifts: Sequence[Drift]) -> None:
    """Raise ChangedCodeError if there are drifts without an answer."""
    if drifts:
        what = [drift_text(drift) for drift in drifts]
        kind_name = drifts[0].kind
        kind, rerun = (kind_name, kind_name) if len(drifts) == 1 else ("KIND", CHANGED)
        remedy = FUNCTION_REMEDY if all(map(_of_functions, drifts)) else REMEDY
        advice = remedy.format(kind=kind, rerun=rerun)
        raise ChangedCodeError("\n".join([*what, advice]))


def _of_functions(drift: Drift) -> bool:
    """Return whether a user's function has moved that a kind of curvflow calls."""
    is_users = any(not move.name.startswith("curvflow.") for move in drift.moves)
    return is_users and not drift.nodes[0].kind.home


def _checked(plan: Plan, answer: Answer) -> Answer:
    """Return the answer with kinds by their names, once it makes sense."""
    accept = [_kind(plan, "--accept-code", name) for name in answer.accept]
    changed = [drift.kind for drift in plan.drifts if drift.kind not in accept]
    rerun = [
        kind
        for name in answer.rerun
        for kind in (changed if name == CHANGED else [_kind(plan, "--rerun", name)])
    ]
    if both := sorted({*accept} & {*rerun}):
        raise RequestError(
            f"{both[0]}: --accept-code cannot be combined with --rerun. Results that "
            "mean the same need not be computed again."
        )
    if answer.accept and not answer.reason.strip():
        raise RequestError(
            "--accept-code: expected a reason, got none. Say with --reason why the "
            "results mean the same; it is kept in the log."
        )
    return replace(answer, accept=accept, rerun=rerun)


def _kind(plan: Plan, option: str, name: str) -> str:
    """Find a kind of the study by its name, or by what the study's `use:` says."""
    known = {node.kind.name for node in plan.graph}
    if name in known:
        return name
    study = plan.graph.study
    for stage in study.stages.values():
        use = stage.document.at(("stages", stage.name, "use"))
        if use is not None and use.plain() == name:
            return stage.kind.name
    hint = nearest(name, known)
    if name in study.stages:
        hint = f"{name} is a stage; its kind is {study.stages[name].kind.name}."
    raise UnknownNameError(
        f"{option}: expected a kind of {study.name}, got '{name}'. {hint}"
    )


def _of_kind(plan: Plan, kind: str) -> list[Node]:
    return [node for node in plan.graph if node.kind.name == kind]


def drift_text(drift: Drift) -> str:
    """Word a drift on one line: the moves, the nodes concerned, the cost."""
    moves = [str(move) for move in drift.moves[:SHOWN]]
    if more := len(drift.moves) - SHOWN if len(drift.moves) > SHOWN else 0:
        moves.append(f"{more} more")
    return (
        f"{drift.kind}: expected the code that version {drift.version} had, got "
        f"another: {'; '.join(moves)}. {counted(len(drift.nodes), 'node')} concerned, "
        f"{_time(drift)} to compute again."
    )


def _time(drift: Drift) -> str:
    cost = drift.cost
    if cost.unknown == cost.nodes:
        return "an unknown time"
    about = "over " if cost.unknown else "about " if cost.rough else ""
    return f"{about}{duration(cost.seconds)}"


def _verified(
    drift: Drift, nodes: Sequence[Node], recheck: Recheck, tell: Callable[[str], None]
) -> Evidence:
    """Compute a sample with the code as it is, and compare it with stored results."""
    tell(f"{drift.kind}: computing {len(nodes)} of {drift.cost.nodes} results again")
    evidence = recheck.compare(nodes)
    if not evidence.is_good:
        worst = evidence.worst
        amount = (
            f", relative difference {worst.relative:.1e}" if worst.is_finite else ""
        )
        raised = f"raise the version of {drift.kind}, or "
        raised = "" if _of_functions(drift) else raised
        raise RequestError(
            f"--accept-code {drift.kind}: expected {counted(len(nodes), 'result')} to "
            f"come out the same, got {evidence.equal} equal; {worst.text}{amount}. "
            f"To compute all again, {raised}run with --rerun {drift.kind}."
        )
    return evidence


def _codes(plan: Plan, drifts: Sequence[Drift]) -> Mapping[str, CodeRecord]:
    """Return the accepted code, for the next change to be compared with."""
    nodes = {
        plan.codes.of(node, loads).fingerprint: (node, loads)
        for drift in drifts
        for node in drift.nodes
        for loads in [recorded_loads(node.receipt.reads if node.receipt else None)]
    }
    return {code: plan.codes.record(*given) for code, given in nodes.items()}


def _settlement(
    drift: Drift, reason: str, evidence: Mapping[str, Evidence]
) -> Settlement:
    pairs = [list(pair) for pair in drift.pairs]
    shown = evidence.get(drift.kind)
    record = {"of": drift.cost.nodes, **shown.as_json()} if shown else {}
    return Settlement(drift.kind, pairs, reason, record)


def _done(drift: Drift | None, evidence: Evidence | None) -> str:
    if drift is None:
        return "its code is as it was, there is nothing to accept"
    accepted = f"code accepted for {counted(drift.cost.nodes, 'result')}"
    if evidence is None:
        return accepted
    tried = f"{evidence.sampled} computed again, {evidence.equal} equal"
    if evidence.worst.relative == 0:
        return f"{accepted}; {tried}"
    return f"{accepted}; {tried}, others within {evidence.worst.relative:.0e}"
