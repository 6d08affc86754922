"""The study at a glance: what was asked, what came out, can it be trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curvflow.flows.report.basis import Basis, compact
from curvflow.flows.report.cost import Cost, Environment
from curvflow.flows.report.expected import Expectations
from curvflow.flows.report.verdicts import STATUSES, Troubles, Verdicts
from curvflow.flows.results.node_results import told
from curvflow.schemas.nodes import Label
from curvflow.schemas.words import counted, duration

# How a line is marked, by a word for machines and a sign for people.
GOOD, BAD, DOUBT, PLAIN = "good", "bad", "doubt", "plain"


@dataclass(frozen=True)
class Mark:
    """One line that says whether the numbers can be trusted.

    Attributes:
        tone: `good`, `bad`, `doubt` or `plain`.
        text: what is to be said.
        target: identifier of the section that says more.
    """

    tone: str
    text: str
    target: str


@dataclass(frozen=True)
class Axis:
    """One axis: its name, how many labels it has, and which."""

    name: str
    size: int
    labels: str


@dataclass(frozen=True)
class Glance:
    """The first screen.

    Attributes:
        question: what the study file says of itself, if anything.
        beside: profile and overrides; empty without.
        axes: of the study.
        stages: per stage its name, kind and number of nodes.
        marks: whether the numbers can be trusted.
        ran: which run is told of and how it went.
        started: when that was, UTC.
        cost: what the results took.
        environment: versions, and the devices.
    """

    question: str
    beside: str
    axes: Sequence[Axis]
    stages: Sequence[tuple[str, str, int]]
    marks: Sequence[Mark]
    ran: str
    started: str
    cost: str
    environment: str


@dataclass(frozen=True)
class Judged:
    """What the marks are drawn from."""

    expectations: Expectations
    crosschecks: Verdicts
    calibrations: Verdicts
    troubles: Troubles
    environment: Environment
    cost: Cost
    unreadable: Sequence[str]


def glance(basis: Basis, judged: Judged) -> Glance:
    """Sum up the study.

    Args:
        basis: what the page is drawn from.
        judged: the sections that judge the numbers.

    Returns:
        The first screen.
    """
    run, spent = basis.run, judged.cost
    cost = f"{spent.told} of computing" if spent.seconds else "nothing computed yet"
    if run and (spent.executed or spent.reused):
        cost += f"; this run computed {spent.executed:,}, reused {spent.reused:,}"
    return Glance(
        _question(basis),
        basis.asked.beside,
        list(_axes(basis)),
        [(view.stage, view.use, len(view.points)) for view in basis.views],
        list(_marks(basis, judged)),
        _ran(basis),
        run.started if run else "",
        cost,
        ", ".join(x for x in (judged.environment.short(), _devices(judged)) if x),
    )


def _axes(basis: Basis) -> Iterator[Axis]:
    """Yield the axes as the results have them, which may be those of another day."""
    document = (basis.results.run or basis.opened.study).document
    for name in document.get("axes") or {}:
        labels: dict[tuple[type, Label], Label] = {}
        for view in (one for one in basis.views if name in one.dims):
            place = view.dims.index(name)
            labels |= {told(point[place]): point[place] for point in view.points}
        yield Axis(name, len(labels), compact(list(labels.values())))


def _devices(judged: Judged) -> str:
    devices = {one.devices for one in judged.cost.stages if one.devices}
    return " and ".join(sorted(devices)) if len(devices) < 3 else ""


def _question(basis: Basis) -> str:
    """Return the comment at the head of the study file, without commands."""
    if basis.asked.run is not None and not _is_unchanged(basis):
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
    words = {"running": "at work now", "failed": "done, with failures"}
    which = (
        f"run {run.number}, "
        if basis.asked.run is None
        else f"as of run {run.number}, "
    )
    return f"{which}{words.get(status, status)}{took}"


def _marks(basis: Basis, judged: Judged) -> Iterator[Mark]:
    yield _complete(basis, judged.troubles)
    if judged.unreadable:
        number = counted(len(judged.unreadable), "result")
        yield Mark(BAD, f"{number} cannot be read", "troubles")
    yield _expected(judged.expectations)
    # Routes that disagree mean that one is wrong; chains may only be too short.
    for verdicts, noun, target, bad in (
        (judged.crosschecks, "cross-checks consistent", "crosschecks", BAD),
        (judged.calibrations, "samplers converged", "calibration", DOUBT),
    ):
        if verdicts.stages:
            yield _agreed(verdicts, noun, target, bad)
    if basis.drifts:
        several = sum(number for _, number in basis.drifts)
        yield Mark(DOUBT, f"Code has changed since for {several:,} results", "code")
    if not judged.environment.is_one:
        several = len(judged.environment.runs)
        yield Mark(DOUBT, f"Results of {several} environments", "environment")


def _complete(basis: Basis, found: Troubles) -> Mark:
    total = sum(len(view.points) for view in basis.views)
    counts = {status: found.count(status) for status in STATUSES}
    wrong = sum(counts.values())
    if not wrong:
        return Mark(GOOD, f"All {counted(total, 'node')} have a result", "troubles")
    told = ", ".join(f"{n:,} {status}" for status, n in counts.items() if n)
    tone = BAD if counts["failed"] else DOUBT
    return Mark(tone, f"{told} of {counted(total, 'node')}", "troubles")


def _expected(found: Expectations) -> Mark:
    total, agree = len(found.found), found.count("agrees")
    target = "expectations"
    if not total:
        return Mark(PLAIN, "The study states no expected values", target)
    if wrong := found.count("contradicted"):
        text = f"{wrong:,} of {counted(total, 'expectation')} contradicted"
        return Mark(BAD, text, target)
    if agree < total:
        text = f"{total - agree:,} of {counted(total, 'expectation')} not measured"
        return Mark(DOUBT, text, target)
    text = f"{agree:,} of {counted(total, 'expectation')} agree"
    if number := found.doubtful:
        return Mark(DOUBT, f"{text}, {number:,} of them by estimates in doubt", target)
    return Mark(GOOD, text, target)


def _agreed(found: Verdicts, noun: str, target: str, bad: str) -> Mark:
    without = len(found.found) - found.given
    more = f", {without:,} without a verdict" if without else ""
    more += f", {found.unread:,} not looked at" if found.unread else ""
    tone = GOOD if found.good == found.given and not more else DOUBT
    tone = bad if found.good < found.given else tone
    return Mark(tone, f"{found.good:,} of {found.given:,} {noun}{more}", target)
