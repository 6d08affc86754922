"""What Prefect shows of one flow run, in words, lines and tables."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

from curvflow.flows.deployed.messages import Messages
from curvflow.flows.plan.plan import Plan
from curvflow.flows.results.check import Finding
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import node_label

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


StateType = Literal["COMPLETED", "FAILED", "CANCELLED"]

# A page is to be read: what is told beyond this stands in the store alone.
MOST_LINES = 60


class Page:
    """A flow run's page; nothing here waits for Prefect's answers."""

    def __init__(self, flow_run: UUID, messages: Messages) -> None:
        """Write on the page of a flow run.

        Args:
            flow_run: its id.
            messages: sends what is written.
        """
        self._flow_run, self._messages = flow_run, messages
        self._lines = 0
        self._progress: str | None = None
        self._stages: dict[str, UUID] = {}

    def lose(self, reason: str) -> None:
        """Write nothing more.

        Args:
            reason: told once.
        """
        self._messages.lose(reason)

    def line(self, text: str, level: int = logging.INFO) -> None:
        """Add a line to the log.

        Args:
            text: the line.
            level: how grave it is.
        """
        self._lines += 1
        if self._lines == MOST_LINES:
            text = "more was told; the store's log has it"
        if self._lines <= MOST_LINES:
            at = datetime.now(UTC)
            self._messages.send(partial(self._log, text, level, at))

    def _log(
        self, text: str, level: int, at: datetime, client: SyncPrefectClient
    ) -> None:
        from prefect.client.schemas.actions import LogCreate

        own = {"flow_run_id": self._flow_run, "name": "curvflow", "timestamp": at}
        client.create_logs([LogCreate(message=text, level=level, **own)])

    def text(self, key: str, title: str, markdown: str) -> None:
        """Add a text.

        Args:
            key: under which Prefect lists it beside those of other runs.
            title: what it is.
            markdown: the text.
        """
        self._messages.send(partial(self._artifact, "markdown", key, title, markdown))

    def progress(self, key: str, title: str, percent: float) -> None:
        """Show how far the run has come; a second call moves the first.

        Args:
            key: under which Prefect lists it beside those of other runs.
            title: what it is.
            percent: from 0 to 100.
        """
        self._messages.send(partial(self._move, key, title, round(percent, 1)))

    # Requests by hand, since what Prefect has for artifacts and tasks reports through
    # a second connection, which is slow to give up; a task holds a thread besides.

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
            "description": title,
            "data": data,
            "flow_run_id": str(self._flow_run),
        }
        return str(client.request("POST", "/artifacts/", json=made).json()["id"])

    def stage_begins(self, stage: str) -> None:
        """Show a stage as a task that runs; nothing if it is shown already.

        Args:
            stage: its name.
        """
        if stage not in self._stages:
            self._stages[stage] = uuid4()
            self._messages.send(partial(self._begin, stage, datetime.now(UTC)))

    def stage_ends(self, stage: str, how: StateType, text: str) -> None:
        """Show that a stage which was begun is over.

        Args:
            stage: its name.
            how: it ended.
            text: what it did.
        """
        self._messages.send(partial(self._end, stage, how, text, datetime.now(UTC)))

    def _begin(self, stage: str, at: datetime, client: SyncPrefectClient) -> None:
        from prefect.client.schemas.actions import TaskRunCreate
        from prefect.client.schemas.objects import State, StateType
        from prefect.states import to_state_create

        state = State[None](type=StateType.RUNNING, timestamp=at)
        one = TaskRunCreate(
            id=self._stages[stage],
            name=stage,
            flow_run_id=self._flow_run,
            task_key=f"curvflow.{stage}",
            dynamic_key="0",
            state=to_state_create(state),
        )
        client.request("POST", "/task_runs/", json=one.model_dump(mode="json"))

    def _end(
        self,
        stage: str,
        how: str,
        text: str,
        at: datetime,
        client: SyncPrefectClient,
    ) -> None:
        from prefect.client.schemas.objects import State, StateType

        state = State[None](type=StateType(how), message=text, timestamp=at)
        client.set_task_run_state(self._stages[stage], state, force=True)


def _slug(key: str) -> str:
    """Prefect's keys have lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")


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
        yield f"{node_label(failure['stage'], failure['coords'])}: {error}"[:300]
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
            node_label(one.expected.stage, one.coords),
            one.expected.quantity,
            f"{one.measured:.4g}",
            f"{one.expected.value:g}",
        )
        for one in findings[: 5 * MOST]
    ]
    return _table(("verdict", "node", "quantity", "measured", "expected"), rows)


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
