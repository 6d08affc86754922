"""Facts of runs that all renderings state alike: counts, failures, digits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from curvflow.flows.results.findings import Finding
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.schemas.records.tables import cell
from curvflow.schemas.words import node_label, one_line, printable

OUTCOMES = ("executed", "cached", "diverged", "failed")


def printable_line(text: object) -> str:
    """Return a text, such as an error's, on one line and escaped."""
    return printable(one_line(text))


def run_time(run: RunRecord) -> str:
    """Return the time of a run, such as `8.1 s`."""
    return f"{run.seconds:.1f} s"


def total_of(counts: Mapping[str, Mapping[str, int]], outcome: str) -> int:
    """Return the number of nodes of one outcome over all stages of a run's counts."""
    return sum(counts.get(outcome, {}).values())


@dataclass(frozen=True)
class Failure:
    """A failed node: its stage, its name and its error on one line."""

    stage: str
    node: str
    error: str


def failures(run: RunRecord) -> Iterator[Failure]:
    """Yield the failures of a run."""
    for record in run.failures:
        node = node_label(record["stage"], record["coords"])
        yield Failure(record["stage"], node, printable_line(record["error"]))


def divergences(
    nodes: Iterable[tuple[str, Receipt | None]],
) -> Counter[tuple[str, str]]:
    """Count diverged nodes by stage and reason."""
    return Counter(
        (stage, receipt.reason)
        for stage, receipt in nodes
        if receipt is not None and receipt.status == "diverged"
    )


def digits(value: float, error: float) -> str:
    """Return a number with the digits that its error allows; empty for NaN."""
    return "" if math.isnan(value) else cell(value, error)


def expected_text(finding: Finding) -> str:
    """Return an expected value with its error or its limits."""
    return finding.expected.text.replace("+-", "\N{PLUS-MINUS SIGN}")
