"""Plans, root causes, predicted time and runs as text within 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curvflow.cli.text.tables import WIDTH, in_front
from curvflow.flows.plan.resume import continued
from curvflow.flows.results.convergence_counts import unconverged_of
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import counted, duration

_TEXT_WIDTH, MARGIN = 80, 11
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
        _TEXT_WIDTH,
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
        yield from textwrap.wrap(told, _TEXT_WIDTH, break_on_hyphens=False)
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


# A blocked node has no result since something before it has none.
COLUMNS = ("executed", "cached", "diverged", "failed", "blocked")


def plan_summary(plan: Mapping[str, Any]) -> str:
    """Lay out a plan: a line per stage, root causes, and time.

    Args:
        plan: as `curvflow plan --json` prints it.

    Returns:
        Several lines.
    """
    numbers = "{:>8}{:>8}{:>8}{:>8}"
    heading = numbers.format("nodes", "cached", "run", "wait")
    names = [(name, stage["kind"]) for name, stage in plan["stages"].items()]
    fronts = in_front([("stage", "kind"), *names], len(heading))
    lines = [fronts[0] + heading]
    for front, stage in zip(fronts[1:], plan["stages"].values(), strict=True):
        counts = (stage[key] for key in ("total", "cached", "stale", "waiting"))
        lines.append(front + numbers.format(*counts))
        if count := stage["removed"]:
            results = counted(count, "result")
            lines.append(f"    {results} removed, made again if needed")
        if count := stage["in_work"]:
            nodes = "1 node is" if count == 1 else f"{count} nodes are"
            lines.append(f"    {nodes} in work in another run")
    lines += code_lines(plan["code"])
    lines += cause_lines(plan["causes"])
    todo = plan["stale"] + plan["waiting"]
    told = f"{plan['study']}: {plan['total']} nodes, {plan['cached']} cached, "
    told += f"{todo} to consider" if todo else "nothing to do"
    told += "; run asks what changed code means" if plan["code"] else ""
    return "\n".join([*lines, _wrapped(told), *totals(plan)])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def run_summary(
    run: RunRecord,
    files: Sequence[Path],
    totals: Mapping[str, int],
    revived: Mapping[str, int],
    judged: Mapping[str, Counter[str]],
) -> str:
    """Lay out what a run did: a line per stage, failures, and the files it left.

    Args:
        run: the run's record.
        files: tables and figures.
        totals: number of nodes per stage.
        revived: number of results computed again after collection, per stage.
        judged: estimates by verdict, per stage that has verdicts.

    Returns:
        Several lines.
    """
    names = [("stage".ljust(24),), *((stage,) for stage in totals)]
    fronts = in_front(names, 10 * len(COLUMNS))
    lines = [fronts[0] + "".join(f"{name:>10}" for name in COLUMNS)]
    for front, (stage, total) in zip(fronts[1:], totals.items(), strict=True):
        counts = {name: run.counts[name][stage] for name in COLUMNS[:-1]}
        reached = counts["executed"] + counts["cached"] + counts["failed"]
        cells = "".join(f"{n:>10}" for n in [*counts.values(), total - reached])
        lines.append(f"{front}{cells}")
    lines += _failures(run)
    lines += [_revived(stage, number) for stage, number in revived.items()]
    lines += doubts(judged)
    executed = sum(run.counts["executed"].values())
    nodes = counted(executed, "node")
    told = f"{run.study}: run {run.number} executed {nodes} in {run.seconds:.1f} s"
    lines.append(_wrapped(told))
    return "\n".join([*lines, *_written(files)])


def doubts(judged: Mapping[str, Counter[str]]) -> list[str]:
    """Say which stages have estimates that are not converged, a line each.

    Args:
        judged: estimates by verdict, per stage that has verdicts.

    Returns:
        Such as `3 of 12 estimates of llc unconverged: 2 drifting, 1 escaped`.
    """
    told = (unconverged_of(stage, found) for stage, found in judged.items())
    return [_wrapped(line) for line in told if line]


def _written(files: Sequence[Path]) -> Iterator[str]:
    """Name files, those that differ by their suffix alone in the way of a shell."""
    suffixes: dict[Path, list[str]] = defaultdict(list)
    for path in files:
        suffixes[_near(path).with_suffix("")].append(path.suffix.removeprefix("."))
    for path, own in suffixes.items():
        yield f"  {path}.{own[0]}" if len(own) == 1 else f"  {path}.{{{','.join(own)}}}"


def _revived(stage: str, number: int) -> str:
    if not number:
        return f"{stage}: nothing was removed"
    return f"{stage}: {counted(number, 'result')} revived, digests equal"


def _failures(run: RunRecord) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for failure in run.failures:
        inside = ",".join(
            f"{axis}={label}" for axis, label in failure["coords"].items()
        )
        error = " ".join(str(failure["error"]).split())
        node = f"{failure['stage']}[{inside}]" if inside else failure["stage"]
        alike[failure["stage"], error].append(node)
    for (_, error), nodes in alike.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield textwrap.shorten(f"failed: {nodes[0]}{more}: {error}", 200)
    if alike:
        first = next(iter(alike.values()))[0]
        yield f"`curvflow why STUDY '{first}'` prints the traceback"


def _near(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
