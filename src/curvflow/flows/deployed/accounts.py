"""What a run's page says in words: the plan, how the run ended, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvflow.flows.check import Finding
from curvflow.flows.names import node_name
from curvflow.flows.plan import Plan
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import RunRecord

COUNTS = ("executed", "cached", "diverged", "failed")
# A page is to be read: of anything longer it has the beginning.
MOST = 10
Row = Sequence[object]


def plan_account(plan: Mapping[str, Any]) -> str:
    """Write a plan: nodes per stage and why they run.

    Args:
        plan: as `curvflow plan --json` prints it.

    Returns:
        Markdown.
    """
    columns = ("total", "cached", "stale", "waiting")
    rows = [
        (name, stage["kind"], *(stage[column] for column in columns))
        for name, stage in plan["stages"].items()
    ]
    causes = plan["causes"]
    lines = [f"- {_inline(one['cause'])}: {_nodes(one)}" for one in causes[:MOST]]
    lines += _more(causes)
    return "\n".join(
        [*_table(("stage", "kind", "nodes", "cached", "run", "wait"), rows), "", *lines]
    )


def _nodes(cause: Mapping[str, Any]) -> str:
    runs = sum(cause["runs"].values())
    follow = sum(cause["may_follow"].values())
    return f"{runs} run" + (f", {follow} may follow" if follow else "")


def run_line(run: RunRecord, blocked: int, followed: str) -> str:
    """Sum up a run.

    Args:
        run: its record.
        blocked: nodes without a result since something before them has none.
        followed: what was taken from runs at the same time.

    Returns:
        Such as `run 7: 70 executed, 0 cached, 0 failed, 2 diverged in 8.1 s`.
    """
    counts = {name: sum(run.counts[name].values()) for name in run.counts}
    shown = ("executed", "cached", "failed", "diverged")
    told = ", ".join(f"{counts[name]} {name}" for name in shown)
    told += f", {blocked} blocked" if blocked else ""
    told = f"run {run.number}: {told} in {run.seconds:.1f} s"
    return f"{told}; {followed}" if followed else told


def failure_lines(run: RunRecord) -> Iterator[str]:
    """Tell of the first nodes that failed.

    Args:
        run: its record.

    Yields:
        Node and error, a line each.
    """
    for failure in run.failures[:MOST]:
        error = " ".join(str(failure["error"]).split())
        yield f"{_name(failure['stage'], failure['coords'])}: {error}"[:300]
    if len(run.failures) > MOST:
        yield f"and {len(run.failures) - MOST} more"


def run_account(
    run: RunRecord,
    plan: Plan,
    line: str,
    findings: Sequence[Finding],
    files: Sequence[Path],
) -> str:
    """Write what a run did: counts, failures, divergence, expectations and files.

    Args:
        run: its record.
        plan: the nodes, each with what became of it.
        line: sums it up.
        findings: what was measured beside what was expected.
        files: tables and figures.

    Returns:
        Markdown.
    """
    rows = [
        (stage, *(run.counts[name][stage] for name in COUNTS))
        for stage in plan.graph.nodes
    ]
    parts = [line, "", *_table(("stage", *COUNTS), rows)]
    failed = [f"- {_inline(text)}" for text in failure_lines(run)]
    parts += _section("Failed", failed)
    parts += _section("Diverged", _diverged(plan))
    parts += _section("Expectations", _expected(findings))
    parts += _section("Files", [f"- `{path}`" for path in files])
    return "\n".join(parts)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"### {title}", "", *lines] if lines else []


def _diverged(plan: Plan) -> list[str]:
    reasons = Counter(
        (node.stage, node.receipt.reason)
        for node in plan.graph
        if node.receipt is not None and node.receipt.status == "diverged"
    )
    lines = [
        f"- {number} of {stage}: {_inline(reason)}"
        for (stage, reason), number in reasons.most_common(MOST)
    ]
    return lines + _more(reasons)


def _expected(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    rows = [
        (
            one.verdict,
            _name(one.expected.stage, one.coords),
            one.expected.quantity,
            f"{one.measured:.4g}",
            f"{one.expected.value:g}",
        )
        for one in findings[: 5 * MOST]
    ]
    return _table(("verdict", "node", "quantity", "measured", "expected"), rows)


def _name(stage: str, coords: Mapping[str, Label]) -> str:
    return node_name(_Named(stage, coords))


@dataclass(frozen=True)
class _Named:
    stage: str
    coords: Mapping[str, Label]


def _more(what: Sequence[object] | Mapping[Any, Any]) -> list[str]:
    return [f"- and {len(what) - MOST} more"] if len(what) > MOST else []


def _table(columns: Row, rows: Sequence[Row]) -> list[str]:
    return [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]


def _row(cells: Row) -> str:
    return f"| {' | '.join(_inline(cell).replace('|', '/') for cell in cells)} |"


def _inline(text: object) -> str:
    """Keep Markdown from reading a name as its own signs."""
    plain = " ".join(str(text).split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>#" else c for c in plain)
