"""The flow that collects a store's unneeded payloads, on a schedule."""

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
from curvflow.schemas.words import counted, printable, size
from curvflow.stores.base import Store
from curvflow.stores.open import open_store


@flow(name="curvflow-gc", persist_result=False, log_prints=False, retries=0)
def collect_store(
    study: str | None = None,
    *,
    store: str | None = None,
    project: str = ".",
    keep_runs: KeepRuns = 5,
    drop: list[str] | None = None,
    grace_minutes: GraceMinutes = 60.0,
    delete: bool = False,
) -> State[Any]:
    """List payloads that no kept run needs; with `delete` move them to the trash.

    Args:
        study: a study file, for its store; relative to the project.
        store: address of the store; relative to the project.
        project: folder that paths are relative to.
        keep_runs: finished runs to keep per study.
        drop: kinds whose arrays go although kept runs name them.
        grace_minutes: minutes before unfinished files go.
        delete: collect; otherwise only list.

    Returns:
        The final state, with the counts in its message.
    """
    settings: dict[str, Any] = {"keep_runs": keep_runs, "drop": drop or ()}
    settings["grace"] = 60.0 * grace_minutes
    try:
        opened = _opened(study, store, Path(project))
        if delete:
            proposal = collect(opened, **settings).proposal
        else:
            proposal = propose(opened, **settings)
    except CurvflowError as error:
        return Failed(message=printable(str(error)))
    if proposal.blocked:
        reason = f"nothing is collected: {proposal.blocked}"
        return Completed(name="Skipped", message=reason)
    summary = _summary(proposal.as_json(), delete=delete)
    page = printable("\n".join(_page(opened, proposal, summary)))
    create_markdown_artifact(page, key="curvflow-gc", description=summary)
    return Completed(message=summary)


def _opened(study: str | None, store: str | None, project: Path) -> Store:
    address = None
    if store is not None:
        address = store if "://" in store else str(project / Path(store).expanduser())
    if study is not None:
        opened = open_study(project / study, store=address).store
    elif address is not None:
        opened = open_store(address, create=False)
    else:
        raise RequestError("expected study or store, got neither. Name a store.")
    if not opened.files.exists():
        raise RequestError(
            f"{opened.location}: expected a store, got nothing there. "
            "Check store and project."
        )
    return opened


def _summary(record: dict[str, Any], *, delete: bool) -> str:
    """Summarise what goes, in a sentence."""
    files = sum(group["files"] for group in record["leftovers"].values())
    gone = sum(group["bytes"] for group in record["leftovers"].values())
    move, remove = ("moved", "removed") if delete else ("to move", "to remove")
    end = "" if delete else "; nothing is touched without delete"
    return (
        f"{counted(record['payloads'], 'payload')} ({size(record['bytes'])}) {move} to "
        f"the trash, {counted(files, 'file')} ({size(gone)}) {remove} for good, "
        f"{size(record['staying'].get('payloads', 0))} stay{end}"
    )


def _page(store: Store, proposal: Proposal, summary: str) -> Iterator[str]:
    record = proposal.as_json()
    yield f"**{store.location}**: {summary}."
    if record["groups"]:
        yield "\n| study/stage | payloads | size | reason |\n|---|--:|--:|---|"
    for group in record["groups"]:
        name = "/".join(part for part in (group["study"], group["stage"]) if part)
        yield (
            f"| {name or '-'} | {group['payloads']} | {size(group['bytes'])} "
            f"| {group['reason']} |"
        )
    if record["leftovers"]:
        yield "\n| for good | files | size |\n|---|--:|--:|"
    for what, files in record["leftovers"].items():
        yield f"| {what} | {files['files']} | {size(files['bytes'])} |"
