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
    echo,
    full_address,
    open_study_store,
    print_json,
)
from curvflow.cli.text.tables import minute
from curvflow.schemas.words import collision_note, counted, one_line

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
    opened = open_study_store(study, store, profile, overrides)
    index = opened.store.index()
    runs = [run for run in index.runs if run.study == opened.study.name]
    rows = [(run.begun, _run(run, index, opened.store)) for run in runs]
    if everything:
        events = ((n, _event(n, entry, index)) for n, entry in index.events)
        rows = sorted([*rows, *events], key=lambda row: row[0])
    if as_json:
        print_json([row for _, row in rows])
    elif rows:
        if collided := opened.store.collided_entries():
            echo(f"curvflow: {collision_note(collided)}", err=True)
        echo("\n".join(line for _, row in rows for line in _lines(row)))
    elif opened.store.files.exists():
        echo("no runs yet")
    else:
        echo(f"no store at {full_address(opened.store)} yet")


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

    heartbeat = store.heartbeats().get(run.begun) if run.ended is None else None
    if heartbeat is None or (state := process(heartbeat)) == "ended":
        return run.status
    return state


def _event(number: int, entry: Mapping[str, Any], index: Index) -> dict[str, Any]:
    text = EVENT_TEXTS[entry["type"]](number, entry, index)
    return {"event": entry["type"], "told": text}


def _settled(number: int, entry: Mapping[str, Any], index: Index) -> str:
    texts = [_settlement(item, number, index) for item in entry["settlements"]]
    return f"accepted code of {'; '.join(texts)}"


def _settlement(settlement: Mapping[str, Any], number: int, index: Index) -> str:
    evidence = _evidence(settlement["evidence"])
    return f"{_accepted(settlement, number, index)}: {settlement['reason']}{evidence}"


def _accepted(settlement: Mapping[str, Any], number: int, index: Index) -> str:
    """Return the kind of a settlement, with its version and number of results."""
    codes = {before for before, _ in settlement["pairs"]}
    concerned = {
        receipt.key: receipt.version
        for (made, _), receipt in index.rows.items()
        if made < number
        and receipt.kind == settlement["kind"]
        and receipt.code in codes
    }
    if not concerned:
        return str(settlement["kind"])
    version = max(concerned.values())
    return (
        f"{settlement['kind']}, version {version}, {counted(len(concerned), 'result')}"
    )


def _evidence(evidence: Mapping[str, Any]) -> str:
    if not evidence:
        return ""
    worst = evidence["largest_relative_difference"]
    others = f", others within {worst:.0e}" if worst else ""
    tried = f"{evidence['sampled']} of {evidence['of']} computed again"
    return f" ({tried}, {evidence['equal']} equal{others})"


def _evicted(number: int, entry: Mapping[str, Any], index: Index) -> str:
    gone = set(entry["payloads"])
    # All results of a payload are of one stage.
    made = {r.payload: r.stage for r in index.rows.values() if r.payload in gone}
    count = counted(len(entry["payloads"]), "payload")
    return f"removed {count}{_stage_counts(made.values())}: {entry['reason']}"


def _retired(number: int, entry: Mapping[str, Any], index: Index) -> str:
    gone = set(entry["keys"])
    by_key = {r.key: r for r in index.rows.values() if r.key in gone}
    count, reason = counted(len(entry["keys"]), "result"), entry["reason"]
    begin, colon, why = reason.partition(": ")
    if begin == "rerun" and colon:
        kinds = ", ".join(sorted({receipt.kind for receipt in by_key.values()}))
        why = "" if why == "asked for" else f": {why}"
        return f"rerun of {kinds}: {count} struck off{why}"
    stages = _stage_counts(receipt.stage for receipt in by_key.values())
    return f"struck off {count}{stages}: {reason}"


def _stage_counts(stages: Iterable[str]) -> str:
    text = ", ".join(f"{n:,} {stage}" for stage, n in Counter(stages).most_common())
    return f" ({text})" if text else ""


EVENT_TEXTS: Mapping[str, Callable[[int, Mapping[str, Any], Index], str]] = {
    "settled": _settled,
    "evicted": _evicted,
    "retired": _retired,
    "pinned": lambda _, entry, __: f"pinned {entry['name']}: {entry['reason']}",
    "unpinned": lambda _, entry, __: f"unpinned {entry['name']}",
}


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    if "event" in row:
        text = one_line(row["told"])
        yield from textwrap.wrap(
            text, 80, initial_indent=" " * 6, subsequent_indent=" " * 8
        )
        return
    counts = ", ".join(f"{row[name]:,} {name}" for name in COUNTS if row[name])
    ended = row["status"] in ("done", "failed")
    seconds = f"{row['seconds']:8.2f} s" if ended else " " * 10
    pins = f"  [{', '.join(row['pins'])}]" if row["pins"] else ""
    when = minute(row["started"])
    line = f"{row['run']:>4}  {when}  {row['status']:<11} {seconds}  {counts}"
    yield f"{line}{pins}".rstrip()
