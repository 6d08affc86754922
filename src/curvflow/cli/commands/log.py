"""`curvflow log`: the runs of a study."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    resolved,
)
from curvflow.cli.text.tables import minute
from curvflow.schemas.words import counted

if TYPE_CHECKING:
    from curvflow.schemas.records.receipts import RunRecord
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
        told = ((n, _event(n, entry, index)) for n, entry in index.events)
        rows = sorted([*rows, *told], key=lambda row: row[0])
    if as_json:
        print_json([row for _, row in rows])
    elif rows:
        typer.echo("\n".join(line for _, row in rows for line in _lines(row)))
    elif asked.store.files.exists():
        typer.echo("no runs yet")
    else:
        typer.echo(f"no store at {resolved(asked.store)} yet")


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
    from curvflow.flows.graph.heartbeats import process

    sign = store.heartbeats().get(run.begun) if run.ended is None else None
    if sign is None or (state := process(sign)) == "ended":
        return run.status
    return state


def _event(number: int, entry: Mapping[str, Any], index: Index) -> dict[str, Any]:
    told = TELLERS[entry["type"]](number, entry, index)
    return {"event": entry["type"], "told": told}


def _settled(number: int, entry: Mapping[str, Any], index: Index) -> str:
    told = [
        f"{_accepted(one, number, index)}: {one['reason']}{_evidence(one['evidence'])}"
        for one in entry["settlements"]
    ]
    return f"accepted code of {'; '.join(told)}"


def _accepted(one: Mapping[str, Any], number: int, index: Index) -> str:
    """Name a kind, with the version and the number of the results that it was for."""
    codes = {before for before, _ in one["pairs"]}
    concerned = {
        receipt.key: receipt.version
        for (made, _), receipt in index.rows.items()
        if made < number and receipt.kind == one["kind"] and receipt.code in codes
    }
    if not concerned:
        return str(one["kind"])
    version = max(concerned.values())
    return f"{one['kind']}, version {version}, {counted(len(concerned), 'result')}"


def _evidence(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    worst = found["largest_relative_difference"]
    others = f", others within {worst:.0e}" if worst else ""
    tried = f"{found['sampled']} of {found['of']} computed again"
    return f" ({tried}, {found['equal']} equal{others})"


def _evicted(number: int, entry: Mapping[str, Any], index: Index) -> str:
    gone = set(entry["payloads"])
    # A payload is made by one stage, whatever the number of results in it.
    made = {r.payload: r.stage for r in index.rows.values() if r.payload in gone}
    told = counted(len(entry["payloads"]), "payload")
    return f"removed {told}{_by(made.values())}: {entry['reason']}"


def _retired(number: int, entry: Mapping[str, Any], index: Index) -> str:
    gone = set(entry["keys"])
    by_key = {r.key: r for r in index.rows.values() if r.key in gone}
    told, reason = counted(len(entry["keys"]), "result"), entry["reason"]
    begin, colon, why = reason.partition(": ")
    if begin == "rerun" and colon:
        kinds = ", ".join(sorted({one.kind for one in by_key.values()}))
        why = "" if why == "asked for" else f": {why}"
        return f"rerun of {kinds}: {told} struck off{why}"
    return f"struck off {told}{_by(one.stage for one in by_key.values())}: {reason}"


def _by(stages: Iterable[str]) -> str:
    told = ", ".join(f"{n:,} {stage}" for stage, n in Counter(stages).most_common())
    return f" ({told})" if told else ""


TELLERS: Mapping[str, Callable[[int, Mapping[str, Any], Index], str]] = {
    "settled": _settled,
    "evicted": _evicted,
    "retired": _retired,
    "pinned": lambda _, entry, __: f"pinned {entry['name']}: {entry['reason']}",
    "unpinned": lambda _, entry, __: f"unpinned {entry['name']}",
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
    when = minute(row["started"])
    line = f"{row['run']:>4}  {when}  {row['status']:<11} {seconds}  {told}"
    yield f"{line}{pins}".rstrip()
