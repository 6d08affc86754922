"""Measured beside expected values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from curvflow.errors import (
    CorruptPayloadError,
    RemovedPayloadError,
    UnknownNameError,
)
from curvflow.flows.report.basis import Basis
from curvflow.flows.report.origins import Origins
from curvflow.flows.results.check import Finding, check
from curvflow.schemas.records.tables import cell

DRAWN = 5.0  # standard deviations to either side that the small drawing shows


@dataclass(frozen=True)
class Expected:
    """One expectation at one node.

    Attributes:
        node: its name.
        origin: number of the node's origin.
        quantity: what is measured.
        measured: with the digits that its error allows.
        full: the same with all digits.
        sem: its standard error; empty if unknown.
        value: what was expected, and how far from it is near.
        z: in combined standard deviations; empty if only limits are known.
        place: z within what the small drawing shows; None without z.
        verdict: `agrees`, `contradicted` or `not measured`.
        source: where the value is from.
        doubts: unconverged estimates behind it, and settings that differ among them.
    """

    node: str
    origin: int
    quantity: str
    measured: str
    full: str
    sem: str
    value: str
    z: str
    place: float | None
    verdict: str
    source: str
    doubts: str = ""


@dataclass(frozen=True)
class Expectations:
    """All of them, and what could not be read."""

    found: Sequence[Expected]
    unreadable: Sequence[str] = ()

    def count(self, verdict: str) -> int:
        """Return how many have a verdict."""
        return sum(one.verdict == verdict for one in self.found)

    @property
    def doubtful(self) -> int:
        """How many agree or contradict by estimates that are in doubt."""
        return sum(bool(one.doubts) for one in self.found)


def expectations(basis: Basis, origins: Origins) -> Expectations:
    """Set what was measured beside what the study expects.

    Args:
        basis: what the page is drawn from.
        origins: take note of the nodes compared.

    Returns:
        A line for each expectation and node, those that contradict first.
    """
    found, unreadable = [], []
    for one in basis.opened.study.expect:
        try:
            found += check(basis.results, (one,))
        except (CorruptPayloadError, RemovedPayloadError) as error:
            unreadable.append(str(error))
            found.append(Finding(one, one.where))
        except UnknownNameError:  # an earlier run had no such stage, label or kind
            found.append(Finding(one, one.where))
    lines = [_expected(basis, origins, one) for one in found]
    order = ("contradicted", "not measured", "agrees")
    return Expectations(
        sorted(lines, key=lambda line: order.index(line.verdict)), unreadable
    )


def _expected(basis: Basis, origins: Origins, found: Finding) -> Expected:
    stage = found.expected.stage
    inside = ",".join(f"{axis}={label}" for axis, label in found.coords.items())
    has_z = math.isfinite(found.z)
    return Expected(
        f"{stage}[{inside}]" if inside else stage,
        _origin(basis, origins, found),
        found.expected.quantity,
        _told(found.measured, found.sem),
        str(found.measured),
        _told(found.sem, found.sem),
        _near(found),
        f"{found.z:+.1f}" if has_z else "",
        max(-DRAWN, min(DRAWN, found.z)) if has_z else None,
        found.verdict,
        found.expected.source,
        found.doubts,
    )


def _origin(basis: Basis, origins: Origins, found: Finding) -> int:
    for view in basis.views:
        if view.stage == found.expected.stage:
            point = tuple(found.coords.get(dim) for dim in view.dims)
            for number, own in enumerate(view.points):
                if tuple(own) == point:
                    return origins.number(view, number)
    return -1


def _told(value: float, error: float) -> str:
    return "" if math.isnan(value) else cell(value, error)


def _near(found: Finding) -> str:
    expected = found.expected
    if expected.limits is None:
        return f"{expected.value:g} \N{PLUS-MINUS SIGN} {expected.sd:g}"
    low, high = expected.limits
    more = expected.within_sems
    or_sems = f", or {more:g} standard errors" if more is not None else ""
    return f"{expected.value:g} within [{low:g}, {high:g}]{or_sems}"
