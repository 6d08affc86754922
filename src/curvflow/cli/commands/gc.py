"""`curvflow gc`: make room in a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import AsJson, StoreUrl, any_store, print_json
from curvflow.schemas.words import counted, duration, size

if TYPE_CHECKING:
    from curvflow.flows.upkeep.proposal import Proposal

STUDY = typer.Argument(help="a study file, whose store is meant", metavar="STUDY")
KEEP_RUNS = typer.Option("--keep-runs", min=0, help="finished runs to keep per study")
DROP = typer.Option(
    "--drop", metavar="KIND", help="let arrays of this kind go, train say; repeatable"
)
GRACE = typer.Option(
    "--grace-minutes", min=1, help="leave what is unfinished alone for so long"
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
    """Say what no kept run needs; with --yes remove it.

    It is moved to the trash, and what is there by then is removed. All studies in the
    store are looked at. Pinned runs, runs at work and the last runs of each study stay.
    What goes can be computed again, and its nodes stay done.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.collect import collect
    from curvflow.flows.upkeep.proposal import propose

    asked, number = any_store(study, store), None
    options: dict[str, Any] = {
        "keep_runs": keep_runs,
        "drop": drop or (),
        "grace": 60.0 * grace,
    }
    if yes:
        done = collect(asked, **options)
        proposal, number = done.proposal, done.number
    else:
        proposal = propose(asked, **options)
    if as_json:
        acted = {"acted": yes and not proposal.blocked, "commit": number}
        print_json(proposal.as_json() | acted)
    else:
        typer.echo("\n".join(_told(proposal, yes=yes)))
    if yes and proposal.blocked:
        sys.exit(1)


def _told(proposal: Proposal, *, yes: bool) -> Iterator[str]:
    if proposal.blocked:
        yield f"nothing is collected: {proposal.blocked}"
        return
    told = proposal.as_json()
    if told["groups"]:
        heading = f"{'study/stage':<{STAGE}}{'payloads':>9}{'size':>9}{'rebuild':>12}"
        yield f"{heading}  reason"
        yield from map(_group, told["groups"])
    for what, some in told["leftovers"].items():
        yield _leftover(what, some["files"], size(some["bytes"]))
    for held in told["held"]:
        verb = "stays" if held["payloads"] == 1 else "stay"
        payloads = counted(held["payloads"], "payload")
        yield f"{payloads} of {held['kind']} {verb}: {held['by']}"
    yield from _summary(told, yes=yes)


def _group(group: dict[str, Any]) -> str:
    name = "/".join(part for part in (group["study"], group["stage"]) if part) or "-"
    if len(name) >= STAGE:
        name = f"…{name[2 - STAGE :]}"
    rebuild = duration(group["seconds"]) if group["seconds"] else "-"
    return (
        f"{name:<{STAGE}}{group['payloads']:>9}{size(group['bytes']):>9}"
        f"{rebuild:>12}  {group['reason']}"
    )


def _leftover(what: str, number: int, room: str) -> str:
    if what == "collected before":
        return f"{counted(number, 'payload')} in the trash since the last gc, {room}"
    return f"{what}: {number}, {room}"


def _summary(told: dict[str, Any], *, yes: bool) -> Iterator[str]:
    staying, seconds = told["staying"], told["seconds"]
    gone = sum(some["bytes"] for some in told["leftovers"].values())
    if not told["groups"] and not told["leftovers"]:
        yield f"nothing to collect; {size(staying['payloads'])} of payloads stay"
    else:
        rebuild = f", {duration(seconds)} to rebuild" if seconds else ""
        move, remove = ("moved", "removed") if yes else ("to move", "to remove")
        yield (
            f"{size(told['bytes'])} {move} to the trash{rebuild}; "
            f"{size(gone)} {remove} for good"
        )
        yield f"{size(staying['payloads'])} of payloads stay" + (
            "" if yes else "; nothing is touched without --yes"
        )
    if staying["quarantine"]:
        yield f"{size(staying['quarantine'])} in quarantine, left to you"
    for run in told["live_runs"]:
        yield f"run {run['run']} of {run['study']} is at work; what it takes stays"
