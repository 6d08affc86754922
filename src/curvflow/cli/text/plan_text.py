"""Plans, root causes, predicted time and runs as text within 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from curvflow.cli.text.tables import WIDTH, name_columns
from curvflow.flows.plan.resume import continued
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.words import counted, duration, node_label, one_line

if TYPE_CHECKING:
    from curvflow.flows.plan.code.fingerprints import Code
    from curvflow.flows.results.node_results import View
    from curvflow.flows.results.results import Results
    from curvflow.schemas.records.receipts import RunRecord

_TEXT_WIDTH, MARGIN = 80, 11
MAX_ERROR, MAX_REMEDY = 600, 200  # letters of a failure's line, of them the last
MAX_CAUSES = 10  # causes printed; all are in the JSON
NO_BREAK = "\N{NO-BREAK SPACE}"  # between words that belong on one line


def cause_lines(causes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield root causes, the longest computations first, two lines or more each."""
    for number, cause in enumerate(causes[:MAX_CAUSES], start=1):
        yield from _hanging(f"  cause {number}", cause["cause"])
        parts = (_runs(cause), _may_follow(cause), _unbroken(predicted_time(cause)))
        yield from _hanging("", "; ".join(filter(None, parts)))
        for continuation in cause["continues"]:
            yield from _hanging("", continued(continuation))
    if more := len(causes[MAX_CAUSES:]):
        yield f"  and {counted(more, 'more cause')}; --json lists all"


def code_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield kinds whose code changed under an unchanged version."""
    for change in changes:
        moves = change["moved"]
        more = f" and {len(moves) - 1} more" if len(moves) > 1 else ""
        name = moves[0]["name"].removeprefix("curvflow.")
        what = f"{change['kind']}: {name} {moves[0]['change']}{more}"
        way = f"{NO_BREAK}> ".join(name.rpartition(":")[2] for name in moves[0]["path"])
        nodes = _unbroken(f"{counted(change['nodes'], 'node')} concerned")
        seconds = _unbroken(_about(change["predicted_seconds"]))
        parts = (f"by {way}" if way else "", nodes, seconds)
        yield from _hanging("  code", what)
        yield from _hanging("", "; ".join(filter(None, parts)))


def followed_lines(kinds: Mapping[str, Code]) -> Iterator[str]:
    """Yield the code of a user's that kinds run, and the modules that count whole."""
    for kind, code in kinds.items():
        theirs = code.of_users()
        modules = {name.partition(":")[0] for name in theirs}
        yield (
            f"{kind}: {counted(len(theirs), 'definition')} of yours in "
            f"{counted(len(modules), 'module')}"
        )
        for module, reason in sorted(code.doubts.items()):
            why = reason or "it is used as a value"
            yield from _hanging("  whole", f"{module}: {why}")


def _hanging(name: str, text: str) -> Iterator[str]:
    """Yield a name and a text behind it with hanging indent."""
    lines = textwrap.wrap(
        text,
        _TEXT_WIDTH,
        initial_indent=name.ljust(MARGIN),
        subsequent_indent=" " * MARGIN,
        break_on_hyphens=False,
    )
    yield from (line.replace(NO_BREAK, " ") for line in lines)


def _unbroken(text: str) -> str:
    return text.replace(" ", NO_BREAK)


def _runs(cause: Mapping[str, Any]) -> str:
    stages = cause["runs"]
    total = sum(stages.values())
    run = "runs" if total == 1 else "run"
    if len(stages) > 1:
        nodes = _unbroken(f"{counted(total, 'node')} {run}")
        return f"{nodes}: {_per_stage(stages)}"
    if not stages:
        return ""
    is_all = cause["examples"] and not cause["may_follow"]
    such = f", such as {cause['examples'][0]}" if is_all else ""
    return f"{_counted(stages)} {run}{such}"


def _may_follow(cause: Mapping[str, Any]) -> str:
    if not cause["may_follow"]:
        return ""
    return f"up to {_counted(cause['may_follow'])} may follow"


def _counted(stages: Mapping[str, int]) -> str:
    return f"{_per_stage(stages)} node{'' if sum(stages.values()) == 1 else 's'}"


def _per_stage(stages: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,}{NO_BREAK}{stage}" for stage, n in stages.items())


def predicted_time(cause: Mapping[str, Any]) -> str:
    """Return the predicted time, `~3 h 10 min`, or `cost unknown`."""
    unknown = cause["unknown_cost_nodes"]
    if unknown and not cause["predicted_seconds"]:
        return "cost unknown"
    more = f", {unknown:,} unknown" if unknown else ""
    return f"{_about(cause['predicted_seconds'])}{more}"


def time_totals(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on the time to come, and one on the time saved."""
    nodes, unknown = plan["predicted_nodes"], plan["unknown_cost_nodes"]
    if nodes > unknown:
        text = f"{_about(plan['predicted_seconds'])} predicted on one worker"
        text += f" for {nodes - unknown:,} node{'' if nodes - unknown == 1 else 's'}"
        if rough := plan["rough_cost_nodes"]:
            text += f", {rough:,} of them roughly"
        if unknown:
            text += f", {unknown:,} of unknown cost"
        if plan["must_run_seconds"] < plan["predicted_seconds"]:
            text += f"; {_about(plan['must_run_seconds'])} for what surely runs"
        yield from textwrap.wrap(text, _TEXT_WIDTH, break_on_hyphens=False)
        if plan["start_seconds"] is not None:
            yield f"plus {_about(plan['start_seconds'])} to start and to write results"
    elif nodes:
        these = "this node" if nodes == 1 else f"these {nodes:,} nodes"
        yield f"no time is known: nothing like {these} was computed here"
    if plan["cached"]:
        share = 100 * plan["cached"] / plan["total"]
        yield f"reuse {share:.1f} %, saves {_about(plan['saved_seconds'])}"


def _about(seconds: float) -> str:
    text = duration(seconds)
    return text if text.startswith("under") else f"~{text}"


# A blocked node has no result because an input has none.
COLUMNS = ("executed", "cached", "diverged", "failed", "blocked")


def plan_summary(plan: Mapping[str, Any]) -> str:
    """Return a plan as text: a line per stage, root causes, and time."""
    numbers = "{:>8}{:>8}{:>8}{:>8}"
    heading = numbers.format("nodes", "cached", "run", "wait")
    names = [(name, stage["kind"]) for name, stage in plan["stages"].items()]
    fronts = name_columns([("stage", "kind"), *names], len(heading))
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
    text = f"{plan['study']}: {plan['total']} nodes, {plan['cached']} cached, "
    text += f"{todo} to consider" if todo else "nothing to do"
    text += "; run asks what changed code means" if plan["code"] else ""
    return "\n".join([*lines, _wrapped(text), *time_totals(plan)])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def run_summary(
    study: str,
    results: Results,
    judged: Mapping[str, Counter[str]],
    lacking: Mapping[str, Sequence[str]],
) -> str:
    """Return a run as text: a line per stage, failures, verdicts and files.

    `study` is the study with its options, as commands on it begin, and `lacking` says
    by stage of which nodes tables and figures lack the results.
    """
    run = results.run
    assert run is not None
    views = {stage: results.view(stage) for stage in results}
    totals = {stage: len(view.points) for stage, view in views.items()}
    outputs = [
        s for s, view in views.items() if issubclass(view.kind.returns, Figure | Table)
    ]
    names = [("stage".ljust(24),), *((stage,) for stage in totals)]
    fronts = name_columns(names, 10 * len(COLUMNS))
    lines = [fronts[0] + "".join(f"{name:>10}" for name in COLUMNS)]
    for front, (stage, total) in zip(fronts[1:], totals.items(), strict=True):
        counts = {name: run.counts[name][stage] for name in COLUMNS[:-1]}
        reached = counts["executed"] + counts["cached"] + counts["failed"]
        cells = "".join(f"{n:>10}" for n in [*counts.values(), total - reached])
        lines.append(f"{front}{cells}")
    lines += _failures(study, run)
    lines += [line for view in views.values() for line in _diverged(view)]
    lines += [
        _wrapped(f"{stage}: {t}") for stage, texts in lacking.items() for t in texts
    ]
    if not run.options.get("partial") and _may_go_without(run, totals, outputs):
        command = f"`curvflow run {study} --partial`"
        lines.append(_wrapped(f"{command} makes tables and figures of the others"))
    lines += [_revived(stage, number) for stage, number in results.revived.items()]
    lines += unconverged_lines(judged)
    executed = sum(run.counts["executed"].values())
    nodes = counted(executed, "node")
    text = f"{run.study}: run {run.number} executed {nodes} in {run.seconds:.1f} s"
    lines.append(_wrapped(text))
    return "\n".join([*lines, *_file_lines(results.files)])


def _may_go_without(
    run: RunRecord, totals: Mapping[str, int], outputs: Sequence[str]
) -> bool:
    """Return whether tables or figures wait for nodes of stages that have some."""
    done, failed = (Counter(run.counts[name]) for name in ("executed", "failed"))
    done.update(run.counts["cached"])
    is_blocked = any(done[s] + failed[s] < totals[s] for s in outputs)
    return is_blocked and any(done[s] and failed[s] for s in totals)


def unconverged_lines(judged: Mapping[str, Counter[str]]) -> list[str]:
    """Return a line per stage with unconverged estimates, by verdict."""
    # Loaded here, for a plan has no verdicts.
    from curvflow.flows.results.convergence_counts import unconverged_of

    lines = (unconverged_of(stage, counts) for stage, counts in judged.items())
    return [_wrapped(line) for line in lines if line]


def _file_lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield paths, those that differ only by suffix as `name.{csv,svg}`."""
    suffixes: dict[Path, list[str]] = defaultdict(list)
    for path in files:
        suffixes[_relative(path).with_suffix("")].append(path.suffix.removeprefix("."))
    for path, endings in suffixes.items():
        yield (
            f"  {path}.{endings[0]}"
            if len(endings) == 1
            else f"  {path}.{{{','.join(endings)}}}"
        )


def _revived(stage: str, number: int) -> str:
    if not number:
        return f"{stage}: nothing was removed"
    return f"{stage}: {counted(number, 'result')} revived, digests equal"


def _failures(study: str, run: RunRecord) -> Iterator[str]:
    nodes_by_error: dict[tuple[str, str], list[str]] = defaultdict(list)
    for failure in run.failures:
        error = one_line(failure["error"])
        node = node_label(failure["stage"], failure["coords"])
        nodes_by_error[failure["stage"], error].append(node)
    for (_, error), nodes in nodes_by_error.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield _shortened(f"failed: {nodes[0]}{more}: {error}")
    if nodes_by_error:
        first = next(iter(nodes_by_error.values()))[0]
        yield f"`curvflow why {study} {quote(first)}` prints the traceback"


def _diverged(view: View) -> Iterator[str]:
    """Yield a sentence on nodes that diverged by themselves: the first's reason."""
    # Loaded here, for a plan has no results.
    from curvflow.flows.results.convergence_counts import CAUSE
    from curvflow.schemas.records.receipts import DIVERGED

    nodes = [
        (node_label(view.stage, view.coords(number)), receipt.reason)
        for number, receipt in enumerate(view.receipts)
        if receipt is not None
        and receipt.status == DIVERGED
        and not CAUSE.match(receipt.reason)
    ]
    if nodes:
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield _wrapped(_shortened(f"diverged: {nodes[0][0]}{more}: {nodes[0][1]}"))


def _shortened(line: str) -> str:
    """Return a line, of a long one both ends: causes stand first, remedies last."""
    if len(line) <= MAX_ERROR:
        return line
    start = textwrap.shorten(line, MAX_ERROR - MAX_REMEDY)
    return f"{start} {line[-MAX_REMEDY:].partition(' ')[2]}"


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
