"""Expectations: measured and expected values, compared."""

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
from curvflow.flows.results.check import Rows, check
from curvflow.flows.results.findings import Finding, gravest_first
from curvflow.flows.results.run_facts import digits, expected_text
from curvflow.schemas.words import node_label

DRAWN = 5.0  # standard deviations to either side in the small drawing


@dataclass(frozen=True)
class Comparison:
    """One expectation at one node.

    Attributes:
        node: its name.
        origin: number of the node's origin.
        quantity: its variable.
        measured: with the digits that its error allows.
        full: the same with all digits.
        sem: its standard error; empty if unknown.
        value: the expected value with its error or limits.
        z: in deviations of one run of the source, or else in errors of both means;
            empty if only limits are known.
        place: z within what the small drawing shows, of deviations of one run.
        verdict: of `VERDICTS`.
        source: of the expected value.
        doubts: unconverged estimates behind it, differing settings, assumptions.
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
    """All comparisons, and results that could not be read."""

    comparisons: Sequence[Comparison]
    unreadable: Sequence[str] = ()

    def count(self, verdict: str) -> int:
        """Return the number of comparisons with a verdict."""
        return sum(comparison.verdict == verdict for comparison in self.comparisons)

    @property
    def doubtful(self) -> int:
        """Return the number of comparisons that rest on estimates in doubt."""
        return sum(bool(comparison.doubts) for comparison in self.comparisons)


def expectations(basis: Basis, origins: Origins) -> Expectations:
    """Compare measured and expected values, the contradicted ones first."""
    findings, unreadable = [], []
    rows: Rows = {}
    for expectation in basis.opened.study.expect:
        try:
            findings += check(basis.results, (expectation,), rows)
        except (CorruptPayloadError, RemovedPayloadError) as error:
            unreadable.append(str(error))
            lacks = "it cannot be read"
            findings.append(Finding(expectation, expectation.where, lacks=lacks))
        except UnknownNameError:  # an earlier run had no such stage, label or kind
            lacks = "the run has no such node"
            findings.append(Finding(expectation, expectation.where, lacks=lacks))
    lines = [
        _comparison(basis, origins, finding) for finding in gravest_first(findings)
    ]
    return Expectations(lines, unreadable)


def _comparison(basis: Basis, origins: Origins, finding: Finding) -> Comparison:
    stage = finding.expected.stage
    z = finding.z if math.isnan(finding.scatter) else finding.scatter
    has_z, is_drawn = math.isfinite(z), math.isfinite(finding.scatter)
    return Comparison(
        node_label(stage, finding.coords),
        _origin(basis, origins, finding),
        finding.expected.label,
        digits(finding.measured, finding.sem),
        str(finding.measured),
        digits(finding.sem, finding.sem),
        expected_text(finding),
        f"{z:+.1f}" if has_z else "",
        max(-DRAWN, min(DRAWN, finding.scatter)) if is_drawn else None,
        finding.verdict,
        finding.expected.source,
        finding.notes,
    )


def _origin(basis: Basis, origins: Origins, finding: Finding) -> int:
    for view in basis.views:
        if view.stage == finding.expected.stage:
            point = tuple(finding.coords.get(dim) for dim in view.dims)
            for number, node_point in enumerate(view.points):
                if tuple(node_point) == point:
                    return origins.number(view, number)
    return -1
