"""The content of a report, gathered from a study and its store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from curvflow.flows.api import results_of
from curvflow.flows.graph.open_study import open_study, read_text
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.cost import Cost, Environment, cost, environment
from curvflow.flows.report.expected import Expectations, expectations
from curvflow.flows.report.origins import Origins
from curvflow.flows.report.overview import Evidence, Overview, overview
from curvflow.flows.report.pictures import Gallery, gallery
from curvflow.flows.report.reproduce import (
    Reproduction,
    StudyText,
    reproduction,
    study_text,
)
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.report.stages import Reader, StageTables
from curvflow.flows.report.verdicts import (
    Troubles,
    Verdicts,
    calibrations,
    crosschecks,
    troubles,
)
from curvflow.flows.results.node_results import View, standing_views, with_removed
from curvflow.flows.results.results import Results
from curvflow.schemas.nodes import Figure, Table


@dataclass(frozen=True)
class Content:
    """The content of one page.

    Attributes:
        study: name of the study.
        written: time of writing, UTC.
        overview: the first screen.
        gallery: figures.
        tables: stages that are tables.
        expectations: measured and expected values.
        crosschecks: independent routes to one quantity.
        calibrations: verdicts of samplers.
        troubles: nodes that failed, diverged or are missing.
        unreadable: a line for each result that could not be read.
        stages: all other stages.
        cost: seconds and work.
        environment: versions and devices.
        text: the study as written.
        reproduction: commands, digests and citations.
        origins: of each number, see `Origins`.
    """

    study: str
    written: datetime
    overview: Overview
    gallery: Gallery
    tables: Sequence[StageTables]
    expectations: Expectations
    crosschecks: Verdicts
    calibrations: Verdicts
    troubles: Troubles
    unreadable: Sequence[str]
    stages: Sequence[StageTables]
    cost: Cost
    environment: Environment
    text: StudyText
    reproduction: Reproduction
    origins: Sequence[tuple[str, ...]]


def open_basis(request: ReportRequest) -> Basis:
    """Open the study and store of a request, as they are now."""
    opened = open_study(
        request.file,
        store=request.store,
        profile=request.profile,
        overrides=request.overrides,
        max_nodes=request.max_nodes,
    )
    text = read_text(request.file, what="a study file", remedy="Look at the path.")
    # The log first: what is committed meanwhile may be shown, but nothing twice.
    store, index = opened.store, opened.store.index()
    if request.run is not None:
        return Basis(request, opened, results_of(opened, request.run), index, text)
    # As `results_of`, but what the plan says of code is kept.
    plan = make_plan(opened.study, store, opened.files)
    views = standing_views(plan)
    results = Results(opened.study.name, with_removed(views, store), store)
    drifts = [(drift.kind, len(drift.nodes)) for drift in plan.drifts]
    return Basis(request, opened, results, index, text, drifts)


def gather(basis: Basis) -> Content:
    """Gather the content of a page; a result that cannot be read hides no other."""
    origins = Origins(basis)
    reader = Reader(basis, origins)
    figures = gallery(basis, origins)
    shown = {view.stage: reader.stage(view) for view in basis.views if _has_rows(view)}
    expected = expectations(basis, origins)
    checked, calibrated = crosschecks(basis, reader), calibrations(basis, reader)
    tables = {view.stage for view in basis.views if _is_table(view)}
    costs = cost(basis, reader)
    lost = [*figures.unreadable, *expected.unreadable, *reader.unreadable]
    unreadable = list(dict.fromkeys(lost))
    troubled, machine = troubles(basis, origins), environment(basis)
    evidence = Evidence(
        expected, checked, calibrated, troubled, machine, costs, unreadable
    )
    return Content(
        basis.name,
        datetime.now(UTC),
        overview(basis, evidence),
        figures,
        [stage for name, stage in shown.items() if name in tables],
        expected,
        checked,
        calibrated,
        troubled,
        unreadable,
        [stage for name, stage in shown.items() if name not in tables],
        costs,
        machine,
        study_text(basis),
        reproduction(basis),
        origins.as_json(),
    )


def _is_table(view: View) -> bool:
    kind = kind_of(view)
    return kind is not None and issubclass(kind.returns, Table)


def _has_rows(view: View) -> bool:
    kind = kind_of(view)
    return kind is None or not issubclass(kind.returns, Figure)
