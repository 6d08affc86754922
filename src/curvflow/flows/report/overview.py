"""Overview: the question, the axes, and whether the results can be trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curvflow.flows.report.basis import Basis, compact
from curvflow.flows.report.cost import Cost, Environment
from curvflow.flows.report.expected import Expectations
from curvflow.flows.report.verdicts import STATUSES, Troubles, Verdicts
from curvflow.flows.results.node_results import typed_label
from curvflow.schemas.nodes import Label
from curvflow.schemas.words import counted, duration

# Tones of a mark; the page adds a sign.
GOOD, BAD, DOUBT, PLAIN = "good", "bad", "doubt", "plain"


@dataclass(frozen=True)
class Mark:
    """One line about the trust in the numbers.

    Attributes:
        tone: `good`, `bad`, `doubt` or `plain`.
        text: for people.
        target: identifier of the section with details.
    """

    tone: str
    text: str
    target: str


@dataclass(frozen=True)
class Axis:
    """One axis: its name, number of labels, and labels in words."""

    name: str
    size: int
    labels: str


@dataclass(frozen=True)
class Overview:
    """The first screen.

    Attributes:
        question: the comment at the head of the study file.
        modifications: profile and overrides; empty without.
        axes: of the study.
        stages: per stage its name, kind and number of nodes.
        marks: whether the numbers can be trusted.
        ran: the run reported and its status.
        started: its time, UTC.
        cost: of all results, in words.
        environment: versions, and the devices.
    """

    question: str
    modifications: str
    axes: Sequence[Axis]
    stages: Sequence[tuple[str, str, int]]
    marks: Sequence[Mark]
    ran: str
    started: str
    cost: str
    environment: str


@dataclass(frozen=True)
class Evidence:
    """The sections that the marks summarise."""

    expectations: Expectations
    crosschecks: Verdicts
    calibrations: Verdicts
    troubles: Troubles
    environment: Environment
    cost: Cost
    unreadable: Sequence[str]


def overview(basis: Basis, evidence: Evidence) -> Overview:
    """Summarise the study, and the sections that judge its numbers."""
    run, spent = basis.run, evidence.cost
    cost = f"{spent.duration} of computing" if spent.seconds else "nothing computed yet"
    if run and (spent.executed or spent.reused):
        cost += f"; this run computed {spent.executed:,}, reused {spent.reused:,}"
    return Overview(
        _question(basis),
        basis.request.modifications,
        list(_axes(basis)),
        [(view.stage, view.use, len(view.points)) for view in basis.views],
        list(_marks(basis, evidence)),
        _ran(basis),
        run.started if run else "",
        cost,
        ", ".join(x for x in (evidence.environment.short(), _devices(evidence)) if x),
    )


def _axes(basis: Basis) -> Iterator[Axis]:
    """Yield the axes of the results, which may be those of an earlier study file."""
    document = (basis.results.run or basis.opened.study).document
    for name in document.get("axes") or {}:
        labels: dict[tuple[type, Label], Label] = {}
        for view in (v for v in basis.views if name in v.dims):
            place = view.dims.index(name)
            labels |= {typed_label(point[place]): point[place] for point in view.points}
        yield Axis(name, len(labels), compact(list(labels.values())))


def _devices(evidence: Evidence) -> str:
    devices = {stage.devices for stage in evidence.cost.stages if stage.devices}
    return " and ".join(sorted(devices)) if len(devices) < 3 else ""


def _question(basis: Basis) -> str:
    """Return the comment at the head of the study file, without commands."""
    if basis.request.run is not None and not _is_unchanged(basis):
        return ""
    lines = []
    for line in basis.text.splitlines():
        if not line.startswith("#"):
            break
        if not re.match(r"#\s{2,}", line):  # an example of a command
            lines.append(line.lstrip("# ").strip())
    return " ".join(line for line in lines if line)


def _is_unchanged(basis: Basis) -> bool:
    return basis.run is not None and basis.run.document == basis.opened.study.document


def _ran(basis: Basis) -> str:
    if basis.run is None:
        return "no run yet"
    run, status = basis.run, basis.status(basis.run)
    took = f" in {duration(run.seconds)}" if run.ended is not None else ""
    words = {"running": "running", "failed": "done, with failures"}
    which = (
        f"run {run.number}, "
        if basis.request.run is None
        else f"as of run {run.number}, "
    )
    return f"{which}{words.get(status, status)}{took}"


def _marks(basis: Basis, evidence: Evidence) -> Iterator[Mark]:
    yield _complete(basis, evidence.troubles)
    if evidence.unreadable:
        number = counted(len(evidence.unreadable), "result")
        yield Mark(BAD, f"{number} cannot be read", "troubles")
    yield _expected(evidence.expectations)
    # Routes that disagree mean that one is wrong; chains may only be too short.
    for verdicts, noun, target, bad in (
        (evidence.crosschecks, "cross-checks consistent", "crosschecks", BAD),
        (evidence.calibrations, "samplers converged", "calibration", DOUBT),
    ):
        if verdicts.stages:
            yield _agreed(verdicts, noun, target, bad)
    if basis.drifts:
        several = sum(number for _, number in basis.drifts)
        yield Mark(DOUBT, f"Code has changed for {several:,} results", "code")
    if not evidence.environment.is_uniform:
        several = len(evidence.environment.runs)
        yield Mark(DOUBT, f"Results from {several} environments", "environment")


def _complete(basis: Basis, troubles: Troubles) -> Mark:
    total = sum(len(view.points) for view in basis.views)
    counts = {status: troubles.count(status) for status in STATUSES}
    wrong = sum(counts.values())
    if not wrong:
        return Mark(GOOD, f"All {counted(total, 'node')} have a result", "troubles")
    listed = ", ".join(f"{n:,} {status}" for status, n in counts.items() if n)
    tone = BAD if counts["failed"] else DOUBT
    return Mark(tone, f"{listed} of {counted(total, 'node')}", "troubles")


def _expected(expectations: Expectations) -> Mark:
    total, agree = len(expectations.comparisons), expectations.count("agrees")
    target = "expectations"
    if not total:
        return Mark(PLAIN, "The study states no expected values", target)
    if wrong := expectations.count("contradicted"):
        text = f"{wrong:,} of {counted(total, 'expectation')} contradicted"
        return Mark(BAD, text, target)
    for verdict, words in (
        ("differs_in_mean", "differ in the mean"),
        ("not measured", "not measured"),
        ("undecided", "undecided"),
    ):
        if number := expectations.count(verdict):
            text = f"{number:,} of {counted(total, 'expectation')} {words}"
            return Mark(DOUBT, text, target)
    text = f"{agree:,} of {counted(total, 'expectation')} agree"
    if number := expectations.doubtful:
        return Mark(
            DOUBT, f"{text}, {number:,} of them from estimates in doubt", target
        )
    return Mark(GOOD, text, target)


def _agreed(verdicts: Verdicts, noun: str, target: str, bad: str) -> Mark:
    without = len(verdicts.nodes) - verdicts.given
    more = f", {without:,} without a verdict" if without else ""
    more += f", {verdicts.unread:,} not read" if verdicts.unread else ""
    tone = GOOD if verdicts.good == verdicts.given and not more else DOUBT
    tone = bad if verdicts.good < verdicts.given else tone
    return Mark(tone, f"{verdicts.good:,} of {verdicts.given:,} {noun}{more}", target)
