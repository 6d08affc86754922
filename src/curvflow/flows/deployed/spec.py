"""The specification of a deployment, and its difference from the server's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RequestError
from curvflow.flows.deployed.schedules import DueTimes, shown_schedule
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import check_named, make_plan
from curvflow.schemas.options import run_options

if TYPE_CHECKING:
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse


FLOW = "curvflow-study"
ENTRYPOINT = "curvflow.flows.deployed.study.run_study"
UNFIT = frozenset("/%")  # not allowed in Prefect's names


@dataclass(frozen=True)
class DeploymentSpec:
    """The specification of a deployment.

    Attributes:
        name: of the deployment.
        pool: whose workers run it; None if it is served without one.
        parameters: of the flow, those other than the defaults.
        due: its schedule, if it has one.
        tags: for the search.
    """

    name: str
    pool: str | None
    parameters: Mapping[str, Any]
    due: DueTimes | None = None
    tags: Sequence[str] = field(default=("curvflow",))

    @property
    def full_name(self) -> str:
        """Return the names of flow and deployment, as Prefect's commands take them."""
        return f"{FLOW}/{self.name}"


def deployment_spec(
    study: Path,
    *,
    name: str | None,
    pool: str | None,
    due: DueTimes | None,
    store: str | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    max_nodes: int | None = None,
    reanalyse: bool = False,
    options: Mapping[str, Any],
) -> DeploymentSpec:
    """Read and check a study, and return the specification of its deployment.

    Args:
        study: path of the study file.
        name: of the deployment; by default the study's, with that of the profile.
        pool: whose workers run it; None if it is served.
        due: its schedule.
        store: its address.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        max_nodes: nodes beyond which the study is refused; None for the default.
        reanalyse: compute aggregates and figures alone.
        options: fields of `RunOptions` that the flow takes.

    Returns:
        The specification, with absolute paths.

    Raises:
        RequestError: the study or an option is invalid.
    """
    address = _lasting_address(store)
    opened = open_study(
        study,
        store=store,
        profile=profile,
        overrides=overrides,
        max_nodes=max_nodes,
    )
    check_named(make_plan(opened.study, opened.store, opened.files))
    checked = run_options(**options)
    parameters = {
        "study": study.name,
        "project": str(study.resolve().parent),
        "store": address,
        "profile": profile,
        "overrides": list(overrides),
        "max_nodes": max_nodes,
        "reanalyse": reanalyse,
        **checked.model_dump(include=set(options), exclude_defaults=True),
    }
    return DeploymentSpec(
        _fit(name or _joined(opened.study.name, profile)),
        pool,
        {key: value for key, value in parameters.items() if value},
        due,
        ("curvflow", opened.study.name),
    )


def default_name(study: Path, profile: str | None) -> str:
    """Return the default name: the study's, with that of the profile."""
    return _joined(open_study(study, profile=profile).study.name, profile)


def _joined(study: str, profile: str | None) -> str:
    return "-".join(part for part in (study, profile) if part)


def _lasting_address(store: str | None) -> str | None:
    """Return a store's address in full; RequestError if it ends with a run."""
    if store == "memory:":
        raise RequestError(
            "--store: expected a store that outlasts a run, got 'memory:'. "
            "Name a folder or s3://bucket/prefix."
        )
    if store is None or "://" in store:
        return store
    return str(Path(store).expanduser().resolve())


def _fit(name: str) -> str:
    if UNFIT & set(name) or not name.isprintable():
        raise RequestError(
            f"--name: expected a name without / and %, got '{name}'. Rename it."
        )
    return name


# Two runs of a study may overlap, but the second would only wait.
LIMIT, STRATEGY = 1, "ENQUEUE"
FURTHER = {"ENQUEUE": "wait", "CANCEL_NEW": "are cancelled"}


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        what: such as `schedule nightly` or `parameter profile`.
        old: on the server; None if new.
        new: as specified; None if removed.
    """

    what: str
    old: Any
    new: Any

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of `curvflow deploy --json`."""
        return {"what": self.what, "old": self.old, "new": self.new}


def changes(
    current: DeploymentResponse | None, spec: DeploymentSpec, form: dict[str, Any]
) -> list[Change]:
    """Compare the deployment on the server with a specification."""
    new = _requested(spec, form)
    old = {} if current is None else _existing(current)
    names = [*new, *(name for name in old if name not in new)]
    pairs = ((name, old.get(name), new.get(name)) for name in names)
    return [Change(*pair) for pair in pairs if pair[1] != pair[2]]


def _requested(spec: DeploymentSpec, form: dict[str, Any]) -> dict[str, Any]:
    schedule = {f"schedule {spec.name}": str(spec.due)} if spec.due else {}
    return {
        "work pool": spec.pool,
        **schedule,
        **_parameters(spec.parameters.items()),
        "entry point": ENTRYPOINT,
        "runs at a time": _runs(LIMIT, STRATEGY),
        "tags": sorted(spec.tags),
        "form of parameters": _digest(form),
        "pull steps": None,
    }


def _existing(current: DeploymentResponse) -> dict[str, Any]:
    limit, options = current.global_concurrency_limit, current.concurrency_options
    runs = "any number"
    if limit is not None:
        strategy = options.collision_strategy.value if options else STRATEGY
        runs = _runs(limit.limit, strategy)
    return {
        "work pool": current.work_pool_name,
        **{_called(schedule): _shown(schedule) for schedule in current.schedules},
        **_parameters(current.parameters.items()),
        "entry point": current.entrypoint,
        "runs at a time": runs,
        "tags": sorted(current.tags),
        "form of parameters": _digest(current.parameter_openapi_schema or {}),
        "pull steps": current.pull_steps or None,
    }


def _runs(limit: int, strategy: str) -> str:
    return f"{limit}, further ones {FURTHER[strategy]}"


def _parameters(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {f"parameter {name}": value for name, value in items}


def _called(schedule: DeploymentSchedule) -> str:
    return f"schedule {schedule.slug or f'without slug {str(schedule.id)[:8]}'}"


def _shown(schedule: DeploymentSchedule) -> str:
    text = shown_schedule(schedule.schedule)
    if schedule.parameters:
        text += f" with {json.dumps(schedule.parameters, sort_keys=True)}"
    return text


def _digest(form: dict[str, Any]) -> str:
    text = json.dumps(form, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
