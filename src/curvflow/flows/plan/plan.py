"""Compare a study's nodes with what a store holds: done, to run, or waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from curvflow.errors import InputError, RequestError, UnknownNameError, nearest
from curvflow.flows.graph.graph import Graph, Node, State, compare, expand, producers
from curvflow.flows.graph.heartbeats import in_work
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.code.callables import check_callables
from curvflow.flows.plan.code.drift import Drift, find_drifts, import_code
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.code.sources import NamedCode
from curvflow.flows.plan.resume import ShorterResults, continues
from curvflow.flows.plan.why.causes import Causes
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.plan.why.root_causes import forecast
from curvflow.flows.reads.current import CurrentReads
from curvflow.schemas.checks.model_data_checks import (
    SamplesOf,
    check_model_and_data,
    samples_taken,
)
from curvflow.schemas.checks.samples import known_samples
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.kinds.shared.imported import ImportedParams
from curvflow.schemas.kinds.shared.operators import unmatched_layers
from curvflow.schemas.kinds.train import TrainParams
from curvflow.schemas.long_lived import paused_gc
from curvflow.schemas.losses import AnyLoss, OwnLoss
from curvflow.schemas.models import AnyModel
from curvflow.schemas.models._base import Model
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.nodes import Array, Figure, Table
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage, Study
from curvflow.stores.base import Index, Store


@dataclass
class Plan:
    """A study's nodes, each with its state against one store.

    Attributes:
        graph: the nodes.
        index: what the store's log said.
        causes: why nodes must run.
        codes: the code that computes the nodes.
        removed: payloads that collection has removed; their results stand.
        drifts: results whose code has changed under an unchanged version.
        in_work: keys of nodes to run that a run at work has claimed.
        reads: files and variables that results stand on, as they are now.
    """

    graph: Graph
    index: Index
    causes: Causes
    codes: Fingerprints
    reads: CurrentReads
    removed: set[str] = field(default_factory=set)
    drifts: Sequence[Drift] = ()
    in_work: Collection[str] = ()

    def counts(self, stage: str | None = None) -> dict[str, int]:
        """Count nodes by state, of one stage or of all."""
        nodes = self.graph.nodes[stage] if stage else list(self.graph)
        by_state = Counter(node.state for node in nodes)
        states: tuple[State, ...] = ("cached", "stale", "waiting")
        return {"total": len(nodes), **{state: by_state[state] for state in states}}

    def as_json(self) -> dict[str, Any]:
        """Return the plan in the form of `curvflow plan --json`."""
        stages = {
            name: {
                "kind": self.graph.study.stages[name].kind.name,
                **self.counts(name),
                "reasons": self.causes.grouped(nodes),
                "continues": continues(nodes),
                "removed": sum(map(self._is_removed, nodes)) if self.removed else 0,
                "in_work": sum(map(self._is_in_work, nodes)) if self.in_work else 0,
            }
            for name, nodes in self.graph.nodes.items()
        }
        return {
            "study": self.graph.study.name,
            **self.counts(),
            "stages": stages,
            **forecast(self.graph, self.index, self.causes),
            "code": [drift.as_json() for drift in self.drifts],
        }

    def _is_in_work(self, node: Node) -> bool:
        return node.state == "stale" and node.key in self.in_work

    def _is_removed(self, node: Node) -> bool:
        """Return whether a done node's arrays would be computed again if needed."""
        payload = node.receipt.payload if node.receipt else None
        return node.state == "cached" and payload in self.removed


def make_plan(
    study: Study, store: Store, files: SourceFiles, *, revive: Collection[str] = ()
) -> Plan:
    """Plan a study against a store; nothing is written.

    Every node has its state; a waiting node's key depends on results that are not
    there yet. `revive` names stages whose results must be there, though collection
    removed them.

    Raises:
        StudyError: the study requests something that cannot be done, or a file that
            it names holds what its kind cannot use.
        UnknownNameError: there is no stage of a name in `revive`.
    """
    if unknown := sorted(set(revive) - study.stages.keys()):
        raise UnknownNameError(
            f"--revive: expected a stage of {study.name}, got '{unknown[0]}'. "
            f"{nearest(unknown[0], study.stages)}"
        )
    with paused_gc(stays=True):
        graph, index = expand(study, files), store.index()
        causes, codes = Causes(graph, index), Fingerprints(files.folder)
        reads = CurrentReads(files.folder, study.stages)
        plan = Plan(graph, index, causes, codes, reads)
        for plan_pass in PASSES:
            plan_pass(plan, PlanSources(store, files, frozenset(revive)))
    return plan


@dataclass(frozen=True)
class PlanSources:
    """The store, the files and the request that a plan is made from."""

    store: Store
    files: SourceFiles
    revive: frozenset[str]


def compare_with_log(plan: Plan, _: PlanSources) -> None:
    """Set key, receipt and state of every node."""
    compare(plan.graph, plan.index, plan.reads)


def mark_lost(plan: Plan, sources: PlanSources) -> None:
    """Mark nodes whose payload is lost as stale; their results are still known.

    Payloads that collection removed are noted instead; their nodes stay done.
    """
    graph, store = plan.graph, sources.store
    named = {node.receipt.payload for node in graph if node.receipt}
    payloads = {payload for payload in named if payload}
    gone = payloads - store.present(payloads)
    evicted = plan.index.evicted
    if not gone <= evicted:  # a collection may have gone on since the log was read
        evicted = evicted | store.index().evicted
        for node in graph:
            payload = node.receipt.payload if node.receipt else None
            if payload in gone and payload not in evicted:
                node.state = "stale"
    plan.removed = gone & evicted


def mark_revived(plan: Plan, sources: PlanSources) -> None:
    """Mark removed results as stale that are shown, or that the request names.

    What lies in the trash can be read until the next collection. It is there for what
    is shown, and is computed again where the request names it, which keeps it.
    """
    evicted = plan.removed | plan.index.evicted
    for node in plan.graph:
        shown = issubclass(node.kind.returns, Table | Figure)
        payload = node.receipt.payload if node.receipt else None
        is_named = node.stage in sources.revive and payload in evicted
        if is_named or (shown and payload in plan.removed):
            node.revive, node.state = True, "stale"


def mark_removed_inputs(plan: Plan, _: PlanSources | None = None) -> None:
    """Mark removed results as stale that nodes which must run take."""
    for nodes in reversed(plan.graph.nodes.values()) if plan.removed else ():
        stale = [node for node in nodes if node.state == "stale"]
        taken = [producer for node in stale for producer in producers(node)]
        for node in taken:
            payload = node.receipt.payload if node.receipt else None
            if node.state == "cached" and payload in plan.removed:
                node.revive, node.state = True, "stale"


def find_shorter_results(plan: Plan, sources: PlanSources) -> None:
    """Give nodes that must run the results of shorter computations to resume."""
    shorter = ShorterResults(plan.index, plan.codes, sources.store, plan.reads)
    for nodes in plan.graph.nodes.values():
        shorter.assign(nodes)


def compare_code(plan: Plan, _: PlanSources | None = None) -> None:
    """Find results whose code has changed under an unchanged version."""
    costs = Costs(plan.graph, plan.index)
    plan.drifts = find_drifts(plan.graph, plan.index, plan.codes, costs)


def check_files(plan: Plan, sources: PlanSources) -> None:
    """Check the files and the functions that the parameters of stale nodes name.

    Raises:
        StudyError: a file or a function is nowhere, or a file holds what the kind
            cannot use, or more than memory does.
    """
    files, seen = sources.files, set[int]()
    named, samples_of = NamedCode(files.folder), _SamplesInFiles(plan.graph, files)
    stages = plan.graph.study.stages
    for node in plan.graph:
        if node.state == "cached" or id(node.form) in seen:
            continue
        seen.add(id(node.form))
        stage = stages[node.stage]
        if plan.codes.functions(node):
            named.seek(stage, node.params, node.coords)
        files.seek(stage, node.params)
        try:
            _check_content(node, stages, files, samples_of)
        except InputError as error:
            raise stage.error((), str(error)) from error
        except MemoryError as error:
            reason = "expected files that fit into memory, got larger ones"
            hint = (
                "Set rows_above of data.array: inputs above it stay on disk, of .npy "
                "and .nc files and of zarr folders."
            )
            raise stage.error((), reason, hint) from error
        _check_rule(node, stages, samples_of)
        _check_layers(node, stages, samples_of)
        _check_factors(node, stages, samples_of)
    for name, nodes in plan.graph.nodes.items() if _reads_arrays(plan.graph) else ():
        if any(node.state != "cached" for node in nodes):
            check_model_and_data(stages[name], stages, samples_of)


def _check_content(
    node: Node,
    stages: Mapping[str, Stage],
    files: SourceFiles,
    samples_of: _SamplesInFiles,
) -> None:
    if node.kind.check is None:
        return
    content = files.read(node.params, node.form)
    node.kind.check(node.params, content)
    samples_of.note(node, content)
    if isinstance(node.params, ImportedParams):
        stage = stages[node.stage]
        samples = samples_taken(stage, stages, node.coords, samples_of)
        _check_tensors(node.params, samples, content)


def _check_tensors(
    params: ImportedParams, samples: Samples, content: Mapping[str, Mapping[str, Array]]
) -> None:
    """Check files against the tensors of a built-in model, if its samples are known.

    A module of the user's own is called where its results are computed, not here.

    Raises:
        InputError: a tensor is missing, superfluous or of another shape.
    """
    is_known = None not in (samples.shape, samples.targets, samples.outputs)
    # What takes tokens depends on the type of the inputs too.
    if params.model.takes_tokens or not is_known:
        return
    # Loaded here, for PyTorch takes a second, and only weights from elsewhere need it.
    from curvflow.tasks.weights.arrangement import check_tensors

    for source, arrays in content.items():
        check_tensors(params, samples, arrays, source)


def _check_rule(node: Node, stages: Mapping[str, Stage], samples_of: SamplesOf) -> None:
    """Refuse a learning rule that a built-in model or its loss does not fit.

    Raises:
        StudyError: the rule says why.
    """
    params, stage = node.params, stages[node.stage]
    if not isinstance(params, TrainParams):
        return
    if not (rule := params.rule.innermost).checks_problem:
        return
    samples = samples_taken(stage, stages, node.coords, samples_of)
    # Loaded here, for PyTorch takes a second, and few rules refuse any model.
    from curvflow.tasks.rules import check_loss, check_rule

    try:
        check_loss(rule, params.loss)
        if _can_be_posed(params.model, samples):
            check_rule(rule, params.model, params.loss, samples)
    except InputError as error:
        reason = str(error).removeprefix("rule: ")
        raise stage.error(("rule",), reason, labels=node.coords) from error


def _check_layers(
    node: Node, stages: Mapping[str, Stage], samples_of: SamplesOf
) -> None:
    """Refuse layers and factors that a built-in model lacks.

    Patterns that no tensor matches are refused - models that list their tensors were
    compared when the study was read - and factors that a layer has none of.

    Raises:
        StudyError: with the nearest names, or the name of a tensor.
    """
    stage, params = stages[node.stage], node.params
    factors = params if isinstance(params, FactorsParams) else None
    checks_layers = factors is not None and factors.looks_at_layers
    has_patterns = bool(getattr(params, "layers", None))
    if not (has_patterns or checks_layers) or "weights" not in stage.inputs:
        return
    source = stages[stage.inputs["weights"][0]]
    training = source.params(node.coords)
    model, loss = (getattr(training, n, "auto") for n in ("model", "loss"))
    if not isinstance(model, Model) or "data" not in source.inputs:
        return
    samples = samples_taken(source, stages, node.coords, samples_of)
    if not _can_be_posed(model, samples):
        return
    # Loaded here, for PyTorch takes a second, and few studies look at single layers.
    from curvflow.tasks.networks.planned import tensor_names

    if has_patterns and not model.tensors:
        names = tensor_names(model, loss, samples)
        for path, reason, hint in unmatched_layers(params, source.name, names):
            raise stage.error(path, reason, hint, labels=node.coords)
    if factors is None or not checks_layers or isinstance(loss, OwnLoss):
        return
    from curvflow.tasks.curvature.network_factors import check_planned

    try:
        check_planned(factors, model, loss, samples)
    except InputError as error:
        name, _, reason = str(error).partition(": ")
        given = "curvature" if factors.curvature == "hessian" else "fisher_type"
        path = (given if name == "fisher_type" else name,)
        raise stage.error(path, reason, labels=node.coords) from error


def _check_factors(
    node: Node, stages: Mapping[str, Stage], samples_of: SamplesOf
) -> None:
    """Refuse factors of a loss that has none of their form.

    Raises:
        StudyError: at the parameter that wants more of the loss.
    """
    stage, params = stages[node.stage], node.params
    if not isinstance(params, FactorsParams) or "weights" not in stage.inputs:
        return
    source = stages[stage.inputs["weights"][0]]
    loss: AnyLoss = getattr(source.params(node.coords), "loss", "auto")
    if params.kfac_approx == "reduce" and "data" in source.inputs:
        samples = samples_taken(source, stages, node.coords, samples_of)
        if samples.tokens is not None:
            raise stage.error(
                ("kfac_approx",),
                f"reduce cannot be combined with the loss of '{source.name}', of which "
                "each position has its own. Take expand.",
                labels=node.coords,
            )
    if loss == "auto":
        return
    # Loaded here, for PyTorch takes a second.
    from curvflow.tasks.curvature.network_factors import check_loss

    try:
        check_loss(params, loss)
    except InputError as error:
        name, _, reason = str(error).partition(": ")
        raise stage.error((name,), reason, labels=node.coords) from error


def _can_be_posed(model: AnyModel, samples: Samples) -> bool:
    """Return whether it is known what a built-in model is to be fitted to."""
    is_known = None not in (samples.shape, samples.targets, samples.outputs)
    # What takes tokens depends on the type of the inputs too.
    is_told = not model.takes_tokens or samples.vocabulary is not None
    # Modules of the user's own are called where they are trained, not here.
    return is_known and is_told and not isinstance(model, FactoryModel)


def _reads_arrays(graph: Graph) -> bool:
    return any(node.kind.samples_in_files for node in graph)


class _SamplesInFiles:
    """The form of data stages' samples; within a plan their files are read once.

    A file is read where parameters do not settle it. Where a stage takes the data, that
    is when the file is checked; else by data given together with weights, a loss or a
    model for some data only, or a number of eigenvalues.
    """

    def __init__(self, graph: Graph, files: SourceFiles) -> None:
        self._files = files
        self._forms = {
            _identity(node.params): node.form
            for nodes in graph.nodes.values()
            for node in nodes
            if node.kind.samples_in_files
        }
        stages = graph.study.stages.values()
        taken = chain.from_iterable(stage.inputs.values() for stage in stages)
        self._taken = set(chain.from_iterable(taken))
        self._known: dict[tuple[type[Params], str], Samples] = {}

    def note(self, node: Node, content: Mapping[str, Mapping[str, Array]]) -> None:
        """Note what a file holds that has just been read, if a stage takes the data."""
        if node.kind.samples_in_files and node.stage in self._taken:
            found = node.kind.samples_in_files(node.params, content)
            self._known[_identity(node.params)] = found

    def __call__(self, kind: Kind, params: Params, taken: Samples) -> Samples:
        """Return the form of the samples that a data stage returns."""
        if kind.samples_in_files is None:
            return known_samples(kind, params, taken)
        if (key := _identity(params)) not in self._known:
            read = self._files.read(params, self._forms[key])
            self._known[key] = kind.samples_in_files(params, read)
        return self._known[key]


def _identity(params: Params) -> tuple[type[Params], str]:
    """Return what equal parameters share; they themselves may hold dictionaries."""
    return type(params), params.model_dump_json()


def find_claimed(plan: Plan, sources: PlanSources) -> None:
    """Note the nodes to run that a run at work has claimed."""
    if any(node.state == "stale" for node in plan.graph):
        plan.in_work = in_work(sources.store)


PASSES: tuple[Callable[[Plan, PlanSources], None], ...] = (
    compare_with_log,
    mark_lost,
    mark_revived,
    mark_removed_inputs,
    find_shorter_results,
    compare_code,
    check_files,
    find_claimed,
)


def is_analysis(plan: Plan) -> bool:
    """Return whether a plan makes tables and figures, and computes nothing else."""
    return not _computations(plan)


def refuse_computing(plan: Plan) -> None:
    """Refuse a plan that does more than make tables and figures.

    Raises:
        RequestError: anything else would have to run, or might.
    """
    if missing := _computations(plan):
        listed = ", ".join(f"{count} of {stage}" for stage, count in missing.items())
        raise RequestError(
            "--reanalyse: expected all results but tables and figures to be there, got "
            f"nodes to compute: {listed}. Run without --reanalyse, or undo the change: "
            "`curvflow why` names it."
        )


def check_named(plan: Plan) -> None:
    """Import what the parameters of open nodes name, see `check_callables`."""
    nodes = (node for node in plan.graph if node.state != "cached")
    check_callables(nodes, plan.graph.study.stages)


def check_code(plan: Plan) -> None:
    """Import the code that the nodes reach; from here on files may be edited.

    Raises:
        StudyError: code that parameters name cannot be imported, or not be called so.
        RequestError: a file has changed since its module was imported.
    """
    plan.codes.read(plan.graph)
    check_named(plan)
    open_nodes = [node for node in plan.graph if node.state != "cached"]
    compared = [node for drift in plan.drifts for node in drift.nodes]
    import_code(plan.codes, [*open_nodes, *compared])


def check_analysis(plan: Plan) -> None:
    """Refuse to compute more than tables and figures, and import their code."""
    refuse_computing(plan)
    check_code(plan)


def _computations(plan: Plan) -> Counter[str]:
    """Count the open nodes that are neither tables nor figures."""
    return Counter(
        node.stage
        for node in plan.graph
        if node.state != "cached" and not issubclass(node.kind.returns, Table | Figure)
    )
