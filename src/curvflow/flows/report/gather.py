"""All that one page says, gathered from a study and its store."""

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
from curvflow.flows.report.overview import Glance, Judged, glance
from curvflow.flows.report.pictures import Gallery, gallery
from curvflow.flows.report.reproduce import Again, Wording, again, wording
from curvflow.flows.report.request import Asked
from curvflow.flows.report.stages import Reader, StageTables
from curvflow.flows.report.verdicts import (
    Troubles,
    Verdicts,
    calibrations,
    crosschecks,
    troubles,
)
from curvflow.flows.results.node_results import View, plan_views, with_removed
from curvflow.flows.results.results import Results
from curvflow.schemas.nodes import Figure, Table


@dataclass(frozen=True)
class Content:
    """All that one page says.

    Attributes:
        study: name of the study.
        written: when the page was written, UTC.
        glance: the first screen.
        gallery: figures.
        tables: stages that are tables.
        expectations: measured beside expected.
        crosschecks: independent routes to one quantity.
        calibrations: verdicts of samplers.
        troubles: nodes without an ordinary result.
        unreadable: results that could not be read, a line each.
        stages: all other stages.
        cost: seconds and work.
        environment: versions and devices.
        wording: the study as it is written.
        again: how to reproduce and to cite.
        origins: where each number is from, see `Origins`.
    """

    study: str
    written: datetime
    glance: Glance
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
    wording: Wording
    again: Again
    origins: Sequence[tuple[str, ...]]


def open_basis(asked: Asked) -> Basis:
    """Open the study and the store that a report is asked of.

    Args:
        asked: how.

    Returns:
        What the page is drawn from, as it is now.

    Raises:
        RequestError: the study or the store cannot be read, or has no such run.
    """
    opened = open_study(
        asked.file, store=asked.store, profile=asked.profile, overrides=asked.overrides
    )
    text = read_text(asked.file, what="a study file", remedy="Look at the path.")
    # The log first: what is committed meanwhile may be shown, but nothing twice.
    store, index = opened.store, opened.store.index()
    if asked.run is not None:
        return Basis(asked, opened, results_of(opened, asked.run), index, text)
    # As `results_of`, but what the plan says of code is kept.
    plan = make_plan(opened.study, store, opened.files)
    views = plan_views(plan, plan.causes.failures(), is_ahead=True)
    results = Results(opened.study.name, with_removed(views, store), store)
    drifts = [(drift.kind, len(drift.nodes)) for drift in plan.drifts]
    return Basis(asked, opened, results, index, text, drifts)


def gather(basis: Basis) -> Content:
    """Gather all that a page says.

    Args:
        basis: what it is drawn from.

    Returns:
        The page's content. A result that cannot be read hides no other.
    """
    origins = Origins(basis)
    reader = Reader(basis, origins)
    figures = gallery(basis, origins)
    shown = {view.stage: reader.stage(view) for view in basis.views if _has_rows(view)}
    expected = expectations(basis, origins)
    checked, calibrated = crosschecks(basis, reader), calibrations(basis, reader)
    tables = {view.stage for view in basis.views if _is_table(view)}
    spent = cost(basis, reader)
    lost = [*figures.unreadable, *expected.unreadable, *reader.unreadable]
    unreadable = list(dict.fromkeys(lost))
    found, where = troubles(basis, origins), environment(basis)
    judged = Judged(expected, checked, calibrated, found, where, spent, unreadable)
    return Content(
        basis.name,
        datetime.now(UTC),
        glance(basis, judged),
        figures,
        [one for name, one in shown.items() if name in tables],
        expected,
        checked,
        calibrated,
        found,
        unreadable,
        [one for name, one in shown.items() if name not in tables],
        spent,
        where,
        wording(basis),
        again(basis),
        origins.as_json(),
    )


def _is_table(view: View) -> bool:
    kind = kind_of(view)
    return kind is not None and issubclass(kind.returns, Table)


def _has_rows(view: View) -> bool:
    kind = kind_of(view)
    return kind is None or not issubclass(kind.returns, Figure)
