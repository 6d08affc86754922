"""`curvflow verify`: read a whole store and compare its digests."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import AsJson, StoreUrl, echo, open_any_store, print_json
from curvflow.schemas.words import collision_note, counted, duration, node_label, size

if TYPE_CHECKING:
    from curvflow.flows.upkeep.verify import Verification

STUDY = typer.Argument(help="a study file, whose store is meant", metavar="STUDY")
DRY = typer.Option("--dry-run", help="report only, and leave everything as it is")
MAX_LISTED = 20  # results listed one by one


def command(
    study: Annotated[Path | None, STUDY] = None,
    *,
    dry_run: Annotated[bool, DRY] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Read all of a store and compare digests.

    Exit code 1 if something is wrong.

    Corrupt payloads go to quarantine and their results are struck off, so that the
    next run recomputes them. Torn entries of the log are marked as void.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.verify import verify

    opened = open_any_store(study, store)
    with _progress() as tell:
        verdict = verify(opened, mend=not dry_run, progress=tell)
    if as_json:
        print_json(verdict.as_json())
    else:
        echo("\n".join(_lines(verdict)))
    sys.exit(0 if verdict.is_well else 1)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on stderr if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(bar_width=20), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda read, total: progress.update(task, completed=read, total=total)


def _lines(verdict: Verification) -> Iterator[str]:
    # A short read does not measure the speed of the disk.
    rate = f", {size(verdict.bytes / verdict.seconds)}/s" if verdict.seconds > 1 else ""
    yield (
        f"{counted(verdict.results, 'result')} in "
        f"{counted(verdict.payloads, 'payload')}: read "
        f"{size(verdict.bytes)} in {duration(verdict.seconds)}{rate}"
    )
    if verdict.evicted:
        count = counted(verdict.evicted, "result")
        yield f"{count} without payloads, which gc has removed"
    for number in verdict.torn:
        yield f"commit {number}: torn or missing" + (
            ", marked as void" if verdict.mended else ""
        )
    if verdict.collided:
        yield collision_note(verdict.collided)
    for fault in verdict.faults:
        yield fault.problem
    yield from _lost(verdict)
    if verdict.is_well:
        yield "all is well"
    elif not verdict.mended:
        yield "nothing is changed; without --dry-run all this is put in order"
    elif verdict.faults:
        yield "struck off, and moved to quarantine; run the study to compute it again"
    else:
        yield "what these commits held runs again with its study, if still missing"


def _lost(verdict: Verification) -> Iterator[str]:
    by_stage = defaultdict(list)
    for receipt in verdict.lost:
        by_stage[receipt.stage].append(receipt)
    for stage, receipts in by_stage.items():
        seconds = sum(receipt.seconds for receipt in receipts)
        count = counted(len(receipts), "result")
        yield f"{stage}: {count} to compute again, {duration(seconds)}"
        for receipt in receipts[:MAX_LISTED]:
            yield f"    {node_label(stage, receipt.coords)}"
        if len(receipts) > MAX_LISTED:
            yield f"    and {len(receipts) - MAX_LISTED} more"
