"""The difference between a deployment on the server and the one that is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curvflow.flows.deployed.wanted import ENTRYPOINT, Wanted
from curvflow.flows.deployed.when import shown_schedule

if TYPE_CHECKING:
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse

# Two runs of a study are safe beside each other, but the second would only wait.
LIMIT, STRATEGY = 1, "ENQUEUE"
FURTHER = {"ENQUEUE": "wait", "CANCEL_NEW": "are cancelled"}


@dataclass(frozen=True)
class Change:
    """One thing that is, or would be, another.

    Attributes:
        what: such as `schedule nightly` or `parameter profile`.
        old: on the server; None if it is not there.
        new: as asked for; None if it goes.
    """

    what: str
    old: Any
    new: Any

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of `curvflow deploy --json`."""
        return {"what": self.what, "old": self.old, "new": self.new}


def changes(
    found: DeploymentResponse | None, wanted: Wanted, form: dict[str, Any]
) -> list[Change]:
    """Compare a deployment on the server with the one that is asked for.

    Args:
        found: on the server, if it is there.
        wanted: as asked for.
        form: JSON Schema of the flow's parameters.

    Returns:
        What differs; nothing if they agree.
    """
    new = _asked(wanted, form)
    old = {} if found is None else _standing(found)
    names = [*new, *(name for name in old if name not in new)]
    pairs = ((name, old.get(name), new.get(name)) for name in names)
    return [Change(*pair) for pair in pairs if pair[1] != pair[2]]


def _asked(wanted: Wanted, form: dict[str, Any]) -> dict[str, Any]:
    schedule = {f"schedule {wanted.name}": str(wanted.when)} if wanted.when else {}
    return {
        "work pool": wanted.pool,
        **schedule,
        **_parameters(wanted.parameters.items()),
        "entry point": ENTRYPOINT,
        "runs at a time": _runs(LIMIT, STRATEGY),
        "tags": sorted(wanted.tags),
        "form of parameters": _digest(form),
        "pull steps": None,
    }


def _standing(found: DeploymentResponse) -> dict[str, Any]:
    limit, options = found.global_concurrency_limit, found.concurrency_options
    runs = "any number"
    if limit is not None:
        strategy = options.collision_strategy.value if options else STRATEGY
        runs = _runs(limit.limit, strategy)
    return {
        "work pool": found.work_pool_name,
        **{_called(one): _shown(one) for one in found.schedules},
        **_parameters(found.parameters.items()),
        "entry point": found.entrypoint,
        "runs at a time": runs,
        "tags": sorted(found.tags),
        "form of parameters": _digest(found.parameter_openapi_schema or {}),
        "pull steps": found.pull_steps or None,
    }


def _runs(limit: int, strategy: str) -> str:
    return f"{limit}, further ones {FURTHER[strategy]}"


def _parameters(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {f"parameter {name}": value for name, value in items}


def _called(schedule: DeploymentSchedule) -> str:
    return f"schedule {schedule.slug or f'without slug {str(schedule.id)[:8]}'}"


def _shown(schedule: DeploymentSchedule) -> str:
    told = shown_schedule(schedule.schedule)
    if schedule.parameters:
        told += f" with {json.dumps(schedule.parameters, sort_keys=True)}"
    return told


def _digest(form: dict[str, Any]) -> str:
    text = json.dumps(form, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
