"""Root causes and predicted time as people read them, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curvflow.schemas.durations import duration

WIDTH, MARGIN, RIGHT = 80, 11, 22
MOST = 10  # causes told of; all are in the JSON


def cause_lines(causes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lay out root causes, those that take longest first.

    Args:
        causes: as `curvflow plan --json` gives them.

    Yields:
        Two lines or more per cause: what changed and what surely runs; what may follow
        and how long all of it takes; an example.
    """
    for number, cause in enumerate(causes[:MOST], start=1):
        first = f"  cause {number}".ljust(MARGIN)
        yield from _beside(cause["cause"], _runs(cause["runs"]), first)
        yield from _beside(_follows(cause), time_of(cause), " " * MARGIN)
    if causes[MOST:]:
        yield f"  and {len(causes) - MOST:,} more causes; --json lists all"


def code_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lay out which kinds' code changed under an unchanged version.

    Args:
        changes: as `curvflow plan --json` gives them.

    Yields:
        Per kind two lines or more: the first definition that moved, how it is reached,
        how many nodes are concerned, and how long they would take again.
    """
    for change in changes:
        moves = change["moved"]
        more = f" and {len(moves) - 1} more" if len(moves) > 1 else ""
        nodes, seconds = change["nodes"], change["predicted_seconds"]
        name = moves[0]["name"].removeprefix("curvflow.")
        what = f"{change['kind']}: {name} {moves[0]['change']}{more}"
        way = " > ".join(name.rpartition(":")[2] for name in moves[0]["path"])
        counted = f"{nodes:,} node{'' if nodes == 1 else 's'} concerned"
        yield from _beside(what, counted, "  code".ljust(MARGIN))
        yield from _beside(f"by {way}" if way else "", _about(seconds), " " * MARGIN)


def _beside(left: str, right: str, margin: str) -> Iterator[str]:
    """Set text with another beside its first line."""
    room = WIDTH - MARGIN - RIGHT - 2
    lines = textwrap.wrap(left, room, break_on_hyphens=False) or [""]
    yield f"{margin}{lines[0]:<{room}}  {right}".rstrip()
    yield from (f"{' ' * MARGIN}{line}" for line in lines[1:])


def _runs(stages: Mapping[str, int]) -> str:
    total = sum(stages.values())
    return f"{total:,} node{'' if total == 1 else 's'} run{'s' if total == 1 else ''}"


def _follows(cause: Mapping[str, Any]) -> str:
    if cause["may_follow"]:
        return f"up to {_counted(cause['may_follow'])} may follow"
    if len(cause["runs"]) > 1:
        return _counted(cause["runs"])
    return f"such as {cause['examples'][0]}" if cause["examples"] else ""


def _counted(stages: Mapping[str, int]) -> str:
    told = ", ".join(f"{n:,} {stage}" for stage, n in stages.items())
    return f"{told} node{'' if sum(stages.values()) == 1 else 's'}"


def time_of(cause: Mapping[str, Any]) -> str:
    """Tell how long something takes.

    Args:
        cause: with `predicted_seconds`, `rough_cost_nodes`, `unknown_cost_nodes`.

    Returns:
        Such as `~3 h 10 min`; `cost unknown` if nothing like it was ever computed.
    """
    unknown = cause["unknown_cost_nodes"]
    if unknown and not cause["predicted_seconds"]:
        return "cost unknown"
    more = f", {unknown:,} unknown" if unknown else ""
    return f"{_about(cause['predicted_seconds'])}{more}"


def totals(plan: Mapping[str, Any]) -> Iterator[str]:
    """Sum up what is to be computed and what is saved.

    Args:
        plan: as `curvflow plan --json` prints it.

    Yields:
        A line on time to come, one on time saved.
    """
    nodes, unknown = plan["predicted_nodes"], plan["unknown_cost_nodes"]
    if nodes > unknown:
        told = f"{_about(plan['predicted_seconds'])} predicted on one worker"
        told += f" for {nodes - unknown:,} node{'' if nodes - unknown == 1 else 's'}"
        if rough := plan["rough_cost_nodes"]:
            told += f", {rough:,} of them roughly"
        if unknown:
            told += f", {unknown:,} of unknown cost"
        if plan["must_run_seconds"] < plan["predicted_seconds"]:
            told += f"; {_about(plan['must_run_seconds'])} for what surely runs"
        yield from textwrap.wrap(told, WIDTH)
    elif nodes:
        yield f"no time is known: nothing like these {nodes:,} nodes was computed here"
    if plan["cached"]:
        share = 100 * plan["cached"] / plan["total"]
        yield f"reuse {share:.1f} %, saves {_about(plan['saved_seconds'])}"


def _about(seconds: float) -> str:
    told = duration(seconds)
    return told if told.startswith("under") else f"~{told}"
