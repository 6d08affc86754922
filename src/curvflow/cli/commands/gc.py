"""`curvflow gc`: garbage collection in a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import AsJson, StoreUrl, echo, open_any_store, print_json
from curvflow.schemas.words import counted, duration, size

if TYPE_CHECKING:
    from curvflow.flows.upkeep.proposal import Proposal

STUDY = typer.Argument(help="a study file, whose store is meant", metavar="STUDY")
KEEP_RUNS = typer.Option("--keep-runs", min=0, help="finished runs to keep per study")
DROP = typer.Option(
    "--drop", metavar="KIND", help="let arrays of this kind go, train say; repeatable"
)
GRACE = typer.Option(
    "--grace-minutes", min=1, help="minutes for which unfinished files are kept"
)
STAGE = 20  # columns of a stage's name


def command(
    study: Annotated[Path | None, STUDY] = None,
    *,
    keep_runs: Annotated[int, KEEP_RUNS] = 5,
    drop: Annotated[list[str] | None, DROP] = None,
    grace: Annotated[float, GRACE] = 60.0,
    yes: Annotated[bool, typer.Option("--yes", help="do it, do not only say")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List payloads that no kept run needs; with --yes remove them.

    They are moved to the trash, and what was there before is removed. All studies in
    the store are considered. Pinned runs, runs at work and the last runs of each study
    stay. Removed results can be recomputed, and their nodes stay done.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.collect import collect
    from curvflow.flows.upkeep.proposal import propose

    opened, number = open_any_store(study, store), None
    options: dict[str, Any] = {
        "keep_runs": keep_runs,
        "drop": drop or (),
        "grace": 60.0 * grace,
    }
    if yes:
        done = collect(opened, **options)
        proposal, number = done.proposal, done.number
    else:
        proposal = propose(opened, **options)
    if as_json:
        acted = {"acted": yes and not proposal.blocked, "commit": number}
        print_json(proposal.as_json() | acted)
    else:
        echo("\n".join(_lines(proposal, yes=yes)))
    if yes and proposal.blocked:
        sys.exit(1)


def _lines(proposal: Proposal, *, yes: bool) -> Iterator[str]:
    if proposal.blocked:
        yield f"nothing is collected: {proposal.blocked}"
        return
    facts = proposal.as_json()
    if facts["groups"]:
        heading = f"{'study/stage':<{STAGE}}{'payloads':>9}{'size':>9}{'rebuild':>12}"
        yield f"{heading}  reason"
        yield from map(_group, facts["groups"])
    for group, leftover in facts["leftovers"].items():
        yield _leftover(group, leftover["files"], size(leftover["bytes"]))
    for kept in facts["held"]:
        verb = "stays" if kept["payloads"] == 1 else "stay"
        payloads = counted(kept["payloads"], "payload")
        yield f"{payloads} of {kept['kind']} {verb}: {kept['by']}"
    yield from _summary(facts, yes=yes)


def _group(group: dict[str, Any]) -> str:
    name = "/".join(part for part in (group["study"], group["stage"]) if part) or "-"
    if len(name) >= STAGE:
        name = f"…{name[2 - STAGE :]}"
    rebuild = duration(group["seconds"]) if group["seconds"] else "-"
    return (
        f"{name:<{STAGE}}{group['payloads']:>9}{size(group['bytes']):>9}"
        f"{rebuild:>12}  {group['reason']}"
    )


def _leftover(group: str, number: int, room: str) -> str:
    if group == "collected before":
        return f"{counted(number, 'payload')} in the trash since the last gc, {room}"
    return f"{group}: {number}, {room}"


def _summary(facts: dict[str, Any], *, yes: bool) -> Iterator[str]:
    staying, seconds = facts["staying"], facts["seconds"]
    gone = sum(leftover["bytes"] for leftover in facts["leftovers"].values())
    if not facts["groups"] and not facts["leftovers"]:
        yield f"nothing to collect; {size(staying['payloads'])} of payloads stay"
    else:
        rebuild = f", {duration(seconds)} to rebuild" if seconds else ""
        move, remove = ("moved", "removed") if yes else ("to move", "to remove")
        yield (
            f"{size(facts['bytes'])} {move} to the trash{rebuild}; "
            f"{size(gone)} {remove} for good"
        )
        yield f"{size(staying['payloads'])} of payloads stay" + (
            "" if yes else "; nothing is touched without --yes"
        )
    if yes and facts["groups"]:
        yield "the next gc --yes empties the trash; run --revive STAGE computes anew"
    if staying["quarantine"]:
        yield f"{size(staying['quarantine'])} in quarantine, left to you"
    for run in facts["live_runs"]:
        yield f"run {run['run']} of {run['study']} is at work; what it takes stays"
