"""`curvflow log`: the runs of a study."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    opened,
    print_json,
)

if TYPE_CHECKING:
    from curvflow.schemas.receipts import RunRecord
    from curvflow.stores.base import Index, Store

COUNTS = ("executed", "cached", "failed", "diverged")


def command(
    study: StudyPath,
    *,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="also what was accepted, removed, struck off and pinned"
        ),
    ] = False,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a study, the latest last."""
    asked = opened(study, store, profile, overrides)
    index = asked.store.index()
    runs = [run for run in index.runs if run.study == asked.study.name]
    rows = [(run.begun, _run(run, index, asked.store)) for run in runs]
    if everything:
        told = ((number, _event(entry)) for number, entry in index.events)
        rows = sorted([*rows, *told], key=lambda row: row[0])
    if as_json:
        print_json([row for _, row in rows])
    else:
        lines = (line for _, row in rows for line in _lines(row))
        typer.echo("\n".join(lines) or "no runs yet")


def _run(run: RunRecord, index: Index, store: Store) -> dict[str, Any]:
    return {
        "run": run.number,
        "started": run.started,
        "status": _status(run, store),
        "seconds": round(run.seconds, 3),
        **{name: sum(run.counts.get(name, {}).values()) for name in COUNTS},
        "pins": [pin.name for pin in index.pins.values() if pin.begun == run.begun],
    }


def _status(run: RunRecord, store: Store) -> str:
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.alive import process

    sign = store.beats().get(run.begun) if run.ended is None else None
    if sign is None or (state := process(sign)) == "ended":
        return run.status
    return state


def _event(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": entry["type"], "told": TELLERS[entry["type"]](entry)}


def _settled(entry: Mapping[str, Any]) -> str:
    told = [
        f"{one['kind']}: {one['reason']}{_evidence(one['evidence'])}"
        for one in entry["settlements"]
    ]
    return f"accepted code of {'; '.join(told)}"


def _evidence(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    worst = found["largest_relative_difference"]
    others = f", others within {worst:.0e}" if worst else ""
    tried = f"{found['sampled']} of {found['of']} computed again"
    return f" ({tried}, {found['equal']} equal{others})"


def _counted(verb: str, field: str, noun: str, entry: Mapping[str, Any]) -> str:
    number = len(entry[field])
    return f"{verb} {number:,} {noun}{'' if number == 1 else 's'}: {entry['reason']}"


TELLERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "settled": _settled,
    "evicted": lambda entry: _counted("removed", "payloads", "payload", entry),
    "retired": lambda entry: _counted("struck off", "keys", "result", entry),
    "pinned": lambda entry: f"pinned {entry['name']}: {entry['reason']}",
    "unpinned": lambda entry: f"unpinned {entry['name']}",
}


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    if "event" in row:
        text = " ".join(row["told"].split())
        yield from textwrap.wrap(
            text, 80, initial_indent=" " * 6, subsequent_indent=" " * 8
        )
        return
    told = ", ".join(f"{row[name]:,} {name}" for name in COUNTS if row[name])
    ended = row["status"] in ("done", "failed")
    seconds = f"{row['seconds']:8.2f} s" if ended else " " * 10
    pins = f"  [{', '.join(row['pins'])}]" if row["pins"] else ""
    line = f"{row['run']:>4}  {row['started']}  {row['status']:<11} {seconds}  {told}"
    yield f"{line}{pins}".rstrip()
