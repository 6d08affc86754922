"""Root causes and predicted time as people read them, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curvflow.flows.plan.resume import continued
from curvflow.schemas.words import counted, duration

WIDTH, MARGIN = 80, 11
MOST = 10  # causes told of; all are in the JSON
HELD = "\N{NO-BREAK SPACE}"  # between words that belong on one line


def cause_lines(causes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lay out root causes, those that take longest first.

    Args:
        causes: as `curvflow plan --json` gives them.

    Yields:
        Two lines or more per cause: what changed; what surely runs, what may follow and
        how long all of it takes; where a longer computation goes on from.
    """
    for number, cause in enumerate(causes[:MOST], start=1):
        yield from _beside(f"  cause {number}", cause["cause"])
        told = (_runs(cause), _follows(cause), _held(time_of(cause)))
        yield from _beside("", "; ".join(filter(None, told)))
        for one in cause["continues"]:
            yield from _beside("", continued(one))
    if more := len(causes[MOST:]):
        yield f"  and {counted(more, 'more cause')}; --json lists all"


def code_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lay out which kinds' code changed under an unchanged version.

    Args:
        changes: as `curvflow plan --json` gives them.

    Yields:
        Per kind two lines or more: the first definition that moved; how it is reached,
        how many nodes are concerned, and how long they would take again.
    """
    for change in changes:
        moves = change["moved"]
        more = f" and {len(moves) - 1} more" if len(moves) > 1 else ""
        name = moves[0]["name"].removeprefix("curvflow.")
        what = f"{change['kind']}: {name} {moves[0]['change']}{more}"
        way = f"{HELD}> ".join(name.rpartition(":")[2] for name in moves[0]["path"])
        nodes = _held(f"{counted(change['nodes'], 'node')} concerned")
        seconds = _held(_about(change["predicted_seconds"]))
        told = (f"by {way}" if way else "", nodes, seconds)
        yield from _beside("  code", what)
        yield from _beside("", "; ".join(filter(None, told)))


def _beside(name: str, text: str) -> Iterator[str]:
    """Set text behind a name, its further lines below itself."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=name.ljust(MARGIN),
        subsequent_indent=" " * MARGIN,
        break_on_hyphens=False,
    )
    yield from (line.replace(HELD, " ") for line in lines)


def _held(text: str) -> str:
    return text.replace(" ", HELD)


def _runs(cause: Mapping[str, Any]) -> str:
    stages = cause["runs"]
    total = sum(stages.values())
    run = "runs" if total == 1 else "run"
    if len(stages) > 1:
        nodes = _held(f"{counted(total, 'node')} {run}")
        return f"{nodes}: {_per_stage(stages)}"
    if not stages:
        return ""
    is_all = cause["examples"] and not cause["may_follow"]
    such = f", such as {cause['examples'][0]}" if is_all else ""
    return f"{_counted(stages)} {run}{such}"


def _follows(cause: Mapping[str, Any]) -> str:
    if not cause["may_follow"]:
        return ""
    return f"up to {_counted(cause['may_follow'])} may follow"


def _counted(stages: Mapping[str, int]) -> str:
    return f"{_per_stage(stages)} node{'' if sum(stages.values()) == 1 else 's'}"


def _per_stage(stages: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,}{HELD}{stage}" for stage, n in stages.items())


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
        Lines on time to come, and one on time saved.
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
        yield from textwrap.wrap(told, WIDTH, break_on_hyphens=False)
        if plan["start_seconds"] is not None:
            yield f"plus {_about(plan['start_seconds'])} to start and to write results"
    elif nodes:
        these = "this node" if nodes == 1 else f"these {nodes:,} nodes"
        yield f"no time is known: nothing like {these} was computed here"
    if plan["cached"]:
        share = 100 * plan["cached"] / plan["total"]
        yield f"reuse {share:.1f} %, saves {_about(plan['saved_seconds'])}"


def _about(seconds: float) -> str:
    told = duration(seconds)
    return told if told.startswith("under") else f"~{told}"
