"""What a deployment of a study is to be, on whatever server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvflow.errors import RequestError
from curvflow.flows.deployed.when import When
from curvflow.flows.door import open_study
from curvflow.flows.plan import make_plan
from curvflow.schemas.options import run_options

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
