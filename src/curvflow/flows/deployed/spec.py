"""What a deployment is to be, and how it differs from the one on the server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RequestError
from curvflow.flows.deployed.schedules import When, shown_schedule
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.options import run_options

if TYPE_CHECKING:
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse


FLOW = "curvflow-study"
ENTRYPOINT = "curvflow.flows.deployed.study.run_study"
UNFIT = frozenset("/%")  # Prefect's names go without these


@dataclass(frozen=True)
class Wanted:
    """A deployment as it is to be.

    Attributes:
        name: of the deployment.
        pool: whose workers run it; None if it is served without one.
        parameters: of the flow, those that are not as by default.
        when: its schedule, if it has one.
        tags: by which it is found.
    """

    name: str
    pool: str | None
    parameters: Mapping[str, Any]
    when: When | None = None
    tags: Sequence[str] = field(default=("curvflow",))

    @property
    def full_name(self) -> str:
        """Name of the flow and of the deployment, as Prefect's commands take them."""
        return f"{FLOW}/{self.name}"


def wanted_of(
    study: Path,
    *,
    name: str | None,
    pool: str | None,
    when: When | None,
    store: str | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    reanalyse: bool = False,
    how: Mapping[str, Any],
) -> Wanted:
    """Read a study, refuse it as `plan` does, and say what its deployment is to be.

    Args:
        study: path of the study file.
        name: of the deployment; by default the study's, with that of the profile.
        pool: whose workers run it; None if it is served.
        when: its schedule.
        store: where results are.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        reanalyse: compute aggregates and figures alone.
        how: fields of `RunOptions` that the flow takes.

    Returns:
        The deployment; its parameters name places in full.

    Raises:
        RequestError: the study asks for something that cannot be done, or an option is
            none.
    """
    if store == "memory:":
        raise RequestError(
            "--store: expected a store that outlasts a run, got 'memory:'. "
            "Name a folder or s3://bucket/prefix."
        )
    opened = open_study(study, store=store, profile=profile, overrides=overrides)
    make_plan(opened.study, opened.store, opened.files)
    options = run_options(**how)
    asked = {
        "study": study.name,
        "project": str(study.resolve().parent),
        "store": _in_full(store),
        "profile": profile,
        "overrides": list(overrides),
        "reanalyse": reanalyse,
        **options.model_dump(include=set(how), exclude_defaults=True),
    }
    return Wanted(
        _fit(name or _joined(opened.study.name, profile)),
        pool,
        {key: value for key, value in asked.items() if value},
        when,
        ("curvflow", opened.study.name),
    )


def own_name(study: Path, profile: str | None) -> str:
    """Return the name that a study's deployment bears if no other is given.

    Args:
        study: path of the study file.
        profile: named overrides of the study.

    Returns:
        The study's name, with that of the profile.

    Raises:
        RequestError: the study cannot be read.
    """
    return _joined(open_study(study, profile=profile).study.name, profile)


def _joined(study: str, profile: str | None) -> str:
    return "-".join(part for part in (study, profile) if part)


def _in_full(store: str | None) -> str | None:
    if store is None or "://" in store:
        return store
    return str(Path(store).expanduser().resolve())


def _fit(name: str) -> str:
    if UNFIT & set(name) or not name.isprintable():
        raise RequestError(f"--name: expected a name without / and %, got '{name}'.")
    return name


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
