"""What commands print for people: plans and runs, within 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curvflow.cli.columns import WIDTH, in_front
from curvflow.cli.foretold import cause_lines, code_lines, totals
from curvflow.flows.results.convergence_counts import unconverged_of
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import counted

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
