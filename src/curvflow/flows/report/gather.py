"""The content of a report, gathered from a study and its store, with its figures.

A figure is an image with a `data:` address, not markup of the page: identifiers of two
drawings cannot meet, and a drawing, of any origin, can neither run a script nor load
anything nor be styled by the page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from curvflow.errors import CorruptPayloadError, RemovedPayloadError
from curvflow.flows.api import results_of
from curvflow.flows.graph.open_study import open_study, read_text
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.report.basis import Basis, kind_of, name_of
from curvflow.flows.report.cost import Cost, Environment, cost, environment
from curvflow.flows.report.expected import Expectations, expectations
from curvflow.flows.report.origins import Origins
from curvflow.flows.report.overview import Evidence, Overview, overview
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
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.words import counted
from curvflow.stores.base import Store


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


MOST = 60  # figures of one stage
MOST_BYTES = 1_500_000  # of a drawing; one with more is shown as pixels if it can be
TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
SIDES = tuple(
    re.compile(rb"<svg\b[^>]*?\s" + side + rb'="([\d.]+)(?:pt)?"')
    for side in (b"width", b"height")
)


@dataclass(frozen=True)
class Picture:
    """One figure.

    Attributes:
        name: of its node.
        origin: its number.
        uri: the image.
        caption: its content, also read aloud.
        size: width and height in points; None if unknown.
    """

    name: str
    origin: int
    uri: str
    caption: str
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Gallery:
    """The figures of the study, and notes on those not shown.

    Attributes:
        pictures: in the study's order.
        notes: figures left out or missing.
        unreadable: a line for each result that could not be read.
    """

    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def gallery(basis: Basis, origins: Origins) -> Gallery:
    """Read the study's figures."""
    figures, store = Gallery(), basis.opened.store
    for view in basis.views:
        kind = kind_of(view)
        if kind is None or not issubclass(kind.returns, Figure):
            continue
        there = [n for n, receipt in enumerate(view.receipts) if receipt]
        for number in there[:MOST]:
            try:
                picture = _picture(store, view, kind, number, origins)
            except (CorruptPayloadError, RemovedPayloadError) as error:
                figures.unreadable.append(str(error))
            else:
                figures.pictures.extend([picture] if picture else [])
        figures.notes.extend(_notes(view, len(there)))
    return figures


def _notes(view: View, there: int) -> Iterator[str]:
    if there > MOST:
        yield (
            f"{view.stage}: the first {MOST} of {there:,} figures are shown; "
            "the others are files in the folder of results."
        )
    if lacking := len(view.points) - there:
        yield f"{view.stage}: {counted(lacking, 'figure')} missing: no result."


def _picture(
    store: Store, view: View, kind: Kind, number: int, origins: Origins
) -> Picture | None:
    receipt, name = view.receipts[number], name_of(view, number)
    assert receipt is not None
    suffix, content = _image(store, receipt, kind)
    if not content:
        return None
    coded = base64.b64encode(content).decode("ascii")
    return Picture(
        name,
        origins.number(view, number),
        f"data:{TYPES[suffix]};base64,{coded}",
        _caption(store, receipt) or name,
        _size(content) if suffix == ".svg" else None,
    )


def _image(store: Store, receipt: Receipt, kind: Kind) -> tuple[str, bytes]:
    """Return the drawing, or its pixels where it is large or missing."""
    files = {v.file: v.name for v in kind.outputs if v.name in receipt.parts}
    content, used = b"", ".svg"
    for suffix in TYPES:
        if suffix in files and (not content or len(content) > MOST_BYTES):
            name = files[suffix]
            content, used = bytes(store.fetch(receipt, [name])[name]), suffix
    return used, content


def _caption(store: Store, receipt: Receipt) -> str:
    if "caption" not in receipt.parts:
        return ""
    return str(store.fetch(receipt, ["caption"])["caption"])


def _size(drawing: bytes) -> tuple[int, int] | None:
    matches = [side.search(drawing[:4000]) for side in SIDES]
    width, height = (round(float(match[1])) if match else 0 for match in matches)
    return (width, height) if width and height else None
