"""The page of one flow run in Prefect: lines, texts, progress and tasks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

from curvflow.flows.deployed.messages import Messages
from curvflow.flows.plan.plan import Plan
from curvflow.flows.results.findings import Finding, counts_text, gravest_first
from curvflow.flows.results.run_facts import (
    OUTCOMES,
    digits,
    divergences,
    expected_text,
    failures,
    printable_line,
    run_time,
    total_of,
)
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import node_label, printable

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


StateType = Literal["COMPLETED", "FAILED", "CANCELLED"]

# More lines stand only in the store's log.
MOST_LINES = 60


class Page:
    """A flow run's page; nothing here waits for Prefect's answers."""

    def __init__(self, flow_run: UUID, messages: Messages) -> None:
        self._flow_run, self._messages = flow_run, messages
        self._lines = 0
        self._progress: str | None = None
        self._stages: dict[str, UUID] = {}

    def lose(self, reason: str) -> None:
        """Write nothing more, for a reason that is reported once."""
        self._messages.lose(reason)

    def line(self, text: str, level: int = logging.INFO) -> None:
        """Add a line to the log, at a level of severity."""
        self._lines += 1
        if self._lines == MOST_LINES:
            text = "further lines are in the store's log"
        text = printable(text)
        if self._lines <= MOST_LINES:
            at = datetime.now(UTC)
            self._messages.send(partial(self._log, text, level, at))

    def _log(
        self, text: str, level: int, at: datetime, client: SyncPrefectClient
    ) -> None:
        from prefect.client.schemas.actions import LogCreate

        fields = {"flow_run_id": self._flow_run, "name": "curvflow", "timestamp": at}
        client.create_logs([LogCreate(message=text, level=level, **fields)])

    def text(self, key: str, title: str, markdown: str) -> None:
        """Add a Markdown text, listed by Prefect under its key."""
        self._messages.send(partial(self._artifact, "markdown", key, title, markdown))

    def progress(self, key: str, title: str, percent: float) -> None:
        """Show progress in percent; a second call updates the first."""
        self._messages.send(partial(self._move, key, title, round(percent, 1)))

    # Requests by hand: Prefect's own artifacts and tasks report through a second
    # connection, which is slow to give up, and a task holds a thread.

    def _move(
        self, key: str, title: str, percent: float, client: SyncPrefectClient
    ) -> None:
        if self._progress is None:
            self._progress = self._artifact("progress", key, title, percent, client)
        else:
            where, new = {"id": self._progress}, {"data": percent}
            client.request("PATCH", "/artifacts/{id}", path_params=where, json=new)

    def _artifact(
        self, kind: str, key: str, title: str, data: Any, client: SyncPrefectClient
    ) -> str:
        made = {
            "key": _slug(key),
            "type": kind,
            "description": printable(title),
            "data": printable(data) if isinstance(data, str) else data,
            "flow_run_id": str(self._flow_run),
        }
        return str(client.request("POST", "/artifacts/", json=made).json()["id"])

    def stage_begins(self, stage: str) -> None:
        """Show a stage as a running task, once."""
        if stage not in self._stages:
            self._stages[stage] = uuid4()
            self._messages.send(partial(self._begin, stage, datetime.now(UTC)))

    def stage_ends(self, stage: str, state: StateType, text: str) -> None:
        """Show the end of a stage that has begun, with its state and counts."""
        self._messages.send(partial(self._end, stage, state, text, datetime.now(UTC)))

    def _begin(self, stage: str, at: datetime, client: SyncPrefectClient) -> None:
        from prefect.client.schemas.actions import TaskRunCreate
        from prefect.client.schemas.objects import State, StateType
        from prefect.states import to_state_create

        state = State[None](type=StateType.RUNNING, timestamp=at)
        task = TaskRunCreate(
            id=self._stages[stage],
            name=stage,
            flow_run_id=self._flow_run,
            task_key=f"curvflow.{stage}",
            dynamic_key="0",
            state=to_state_create(state),
        )
        client.request("POST", "/task_runs/", json=task.model_dump(mode="json"))

    def _end(
        self,
        stage: str,
        end: str,
        text: str,
        at: datetime,
        client: SyncPrefectClient,
    ) -> None:
        from prefect.client.schemas.objects import State, StateType

        message = printable(text)
        state = State[None](type=StateType(end), message=message, timestamp=at)
        client.set_task_run_state(self._stages[stage], state, force=True)


def _slug(key: str) -> str:
    """Return a key in Prefect's alphabet: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")


# Longer lists are cut.
MOST = 10
Row = Sequence[object]


def plan_markdown(plan: Mapping[str, Any]) -> str:
    """Write a plan, as `curvflow plan --json` prints it: nodes and causes."""
    columns = ("total", "cached", "stale", "waiting")
    rows = [
        (name, stage["kind"], *(stage[column] for column in columns))
        for name, stage in plan["stages"].items()
    ]
    causes = plan["causes"]
    lines = [f"- {_inline(cause['cause'])}: {_nodes(cause)}" for cause in causes[:MOST]]
    lines += _more(causes)
    return "\n".join(
        [*_table(("stage", "kind", "nodes", "cached", "run", "wait"), rows), "", *lines]
    )


def _nodes(cause: Mapping[str, Any]) -> str:
    runs = sum(cause["runs"].values())
    follow = sum(cause["may_follow"].values())
    return f"{runs} run" + (f", {follow} may follow" if follow else "")


def run_line(run: RunRecord, blocked: int, followed: str) -> str:
    """Summarise a run: `run 7: 70 executed, 0 cached, 0 failed in 8.1 s`."""
    shown = ("executed", "cached", "failed", "diverged")
    counts = ", ".join(f"{total_of(run.counts, name)} {name}" for name in shown)
    counts += f", {blocked} blocked" if blocked else ""
    text = f"run {run.number}: {counts} in {run_time(run)}"
    return f"{text}; {followed}" if followed else text


def failure_lines(run: RunRecord) -> Iterator[str]:
    """Yield node and error of the first nodes that failed."""
    for failure in islice(failures(run), MOST):
        yield f"{failure.node}: {failure.error}"[:300]
    if len(run.failures) > MOST:
        yield f"and {len(run.failures) - MOST} more"


def run_markdown(
    run: RunRecord,
    plan: Plan,
    line: str,
    findings: Sequence[Finding],
    files: Sequence[Path],
) -> str:
    """Write a run's counts, failures, divergence, expectations and files."""
    rows = [
        (stage, *(run.counts[name][stage] for name in OUTCOMES))
        for stage in plan.graph.nodes
    ]
    parts = [line, "", *_table(("stage", *OUTCOMES), rows)]
    failed = [f"- {_inline(text)}" for text in failure_lines(run)]
    parts += _section("Failed", failed)
    parts += _section("Diverged", _diverged(plan))
    parts += _section("Expectations", _expected(findings))
    parts += _section("Files", [f"- `{path}`" for path in files])
    return "\n".join(parts)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"### {title}", "", *lines] if lines else []


def _diverged(plan: Plan) -> list[str]:
    reasons = divergences((node.stage, node.receipt) for node in plan.graph)
    lines = [
        f"- {number} of {stage}: {_inline(reason)}"
        for (stage, reason), number in reasons.most_common(MOST)
    ]
    return lines + _more(reasons)


def _expected(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    first = gravest_first(findings)
    rows = [
        (
            finding.verdict,
            node_label(finding.expected.stage, finding.coords),
            finding.expected.label,
            digits(finding.measured, finding.sem),
            expected_text(finding),
        )
        for finding in first[: 5 * MOST]
    ]
    table = _table(("verdict", "node", "quantity", "measured", "expected"), rows)
    left = len(first) - len(rows)
    more = ["", f"and {left} more"] if left else []
    return [counts_text(findings), "", *table, *more]


def _more(what: Sequence[object] | Mapping[Any, Any]) -> list[str]:
    return [f"- and {len(what) - MOST} more"] if len(what) > MOST else []


def _table(columns: Row, rows: Sequence[Row]) -> list[str]:
    return [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]


def _row(cells: Row) -> str:
    return f"| {' | '.join(_inline(cell).replace('|', '/') for cell in cells)} |"


def _inline(text: object) -> str:
    """Escape the characters of Markdown in a name."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>#" else c for c in printable_line(text))
