"""What Prefect shows of one flow run: lines, progress, stages and tables."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

from curvflow.flows.deployed.messages import Messages

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
