"""The flow that makes room in a store, on a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from curvflow.errors import CurvflowError, RequestError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.upkeep.collect import collect
from curvflow.flows.upkeep.proposal import Proposal, propose
from curvflow.schemas.options import GraceMinutes, KeepRuns
from curvflow.schemas.words import counted, size
from curvflow.stores.base import Store
from curvflow.stores.open import open_store


@flow(name="curvflow-gc", persist_result=False, log_prints=False, retries=0)
def collect_store(
    study: str | None = None,
    store: str | None = None,
    project: str = ".",
    keep_runs: KeepRuns = 5,
    drop: list[str] | None = None,
    grace_minutes: GraceMinutes = 60.0,
    delete: bool = False,
) -> State[Any]:
    """Say what no kept run needs in a store; with `delete` move it to the trash.

    Args:
        study: a study file, whose store is meant; relative to the project.
        store: the store itself; relative to the project.
        project: folder that paths are relative to.
        keep_runs: finished runs to keep per study.
        drop: kinds whose arrays go although kept runs name them.
        grace_minutes: minutes for which unfinished files are kept.
        delete: do it, do not only say.

    Returns:
        The final state, with the counts in its message.
    """
    asked: dict[str, Any] = {"keep_runs": keep_runs, "drop": drop or ()}
    asked["grace"] = 60.0 * grace_minutes
    try:
        opened = _opened(study, store, Path(project))
        if delete:
            proposal = collect(opened, **asked).proposal
        else:
            proposal = propose(opened, **asked)
    except CurvflowError as error:
        return Failed(message=str(error))
    if proposal.blocked:
        why = f"nothing is collected: {proposal.blocked}"
        return Completed(name="Skipped", message=why)
    told = _summary(proposal.as_json(), delete=delete)
    page = "\n".join(_page(opened, proposal, told))
    create_markdown_artifact(page, key="curvflow-gc", description=told)
    return Completed(message=told)


def _opened(study: str | None, store: str | None, project: Path) -> Store:
    where = None
    if store is not None:
        where = store if "://" in store else str(project / Path(store).expanduser())
    if study is not None:
        found = open_study(project / study, store=where).store
    elif where is not None:
        found = open_store(where, create=False)
    else:
        raise RequestError("expected study or store, got neither. Name a store.")
    if not found.files.exists():
        raise RequestError(
            f"{found.location}: expected a store, got nothing there. "
            "Check store and project."
        )
    return found


def _summary(told: dict[str, Any], *, delete: bool) -> str:
    """Count what goes, in a sentence."""
    files = sum(some["files"] for some in told["leftovers"].values())
    gone = sum(some["bytes"] for some in told["leftovers"].values())
    move, remove = ("moved", "removed") if delete else ("to move", "to remove")
    end = "" if delete else "; nothing is touched without delete"
    return (
        f"{counted(told['payloads'], 'payload')} ({size(told['bytes'])}) {move} to the "
        f"trash, {counted(files, 'file')} ({size(gone)}) {remove} for good, "
        f"{size(told['staying'].get('payloads', 0))} stay{end}"
    )


def _page(store: Store, proposal: Proposal, summary: str) -> Iterator[str]:
    told = proposal.as_json()
    yield f"**{store.location}**: {summary}."
    if told["groups"]:
        yield "\n| study/stage | payloads | size | reason |\n|---|--:|--:|---|"
    for group in told["groups"]:
        name = "/".join(part for part in (group["study"], group["stage"]) if part)
        yield (
            f"| {name or '-'} | {group['payloads']} | {size(group['bytes'])} "
            f"| {group['reason']} |"
        )
    if told["leftovers"]:
        yield "\n| for good | files | size |\n|---|--:|--:|"
    for what, some in told["leftovers"].items():
        yield f"| {what} | {some['files']} | {size(some['bytes'])} |"
