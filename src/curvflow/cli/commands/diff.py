"""`curvflow diff`: the results of two runs of a study, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
    open_study_store,
    print_json,
)
from curvflow.cli.text.tables import name_columns
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.results.diff import StageDiff
    from curvflow.stores.base import Index

MAX_ROWS = 12  # rows printed per stage; all are in the JSON
EARLIER = typer.Argument(metavar="A", help="number of a run [default: that before B]")
LATER = typer.Argument(metavar="B", help="another [default: the last finished]")
STAGE = typer.Option(metavar="NAME", help="only this stage; repeatable")
RTOL = typer.Option("--rtol", min=0.0, help="leave out smaller relative differences")


def command(
    study: StudyPath,
    before: Annotated[int | None, EARLIER] = None,
    after: Annotated[int | None, LATER] = None,
    *,
    stage: Annotated[list[str] | None, STAGE] = None,
    rtol: Annotated[float, RTOL] = 0.0,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compare the numbers of run A with those of run B.

    By default the last finished run with the one before.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.api import find_run
    from curvflow.flows.results.diff import diff_runs

    opened = open_study_store(study, store, profile, overrides)
    name, index = opened.study.name, opened.store.index()
    first, second = _numbers(index, name, before, after)
    diffs = diff_runs(
        find_run(opened.store, name, first),
        find_run(opened.store, name, second),
        opened.store,
        stages=stage or (),
        rtol=rtol,
    )
    if as_json:
        stages = {diff.stage: diff.as_json() for diff in diffs}
        print_json({"study": name, "before": first, "after": second, "stages": stages})
        return
    echo(f"{name}: run {first} -> run {second}")
    echo("\n".join(_lines(diffs, rtol)))


def _numbers(
    index: Index, study: str, before: int | None, after: int | None
) -> tuple[int, int]:
    ended = [r.number for r in index.runs if r.study == study and r.ended is not None]
    if after is None:
        after = ended[-1] if ended else 0
    earlier = [number for number in ended if number < after]
    if before is None and not earlier:
        raise RequestError(
            f"diff: expected two finished runs of {study}, got {len(ended)}. "
            "`curvflow run` makes another."
        )
    return earlier[-1] if before is None else before, after


def _lines(diffs: Sequence[StageDiff], rtol: float) -> Iterator[str]:
    heads = ("added", "removed", "changed", "recomputed", "same")
    names = [("stage".ljust(24),), *((diff.stage,) for diff in diffs)]
    fronts = name_columns(names, 11 * len(heads))
    yield fronts[0] + "".join(f"{head:>11}" for head in heads)
    for front, diff in zip(fronts[1:], diffs, strict=True):
        yield front + "".join(f"{diff.counts[h]:>11,}" for h in heads)
    if not any(diff.differs for diff in diffs):
        yield "no result differs"
    for diff in diffs:
        yield from _stage(diff, rtol)


def _stage(diff: StageDiff, rtol: float) -> Iterator[str]:
    from curvflow.schemas.records.tables import render

    if not diff.counts["changed"]:
        return
    yield ""
    parts = [f"{n} {change}" for change, n in diff.statuses.items()]
    if diff.gone:
        parts.append(f"{diff.gone} whose numbers are no longer stored")
    rows = [_row(row) for row in diff.rows]
    rows = rows or _variables(diff.variables)
    if not rows and diff.below_rtol:
        parts.append(f"none by more than --rtol {rtol:g}")
    elif not rows and diff.gone < diff.counts["changed"]:
        parts.append("no number in tables differs")
    parts.insert(0, f"{diff.counts['changed']} changed")
    yield f"{diff.stage}: {'; '.join(parts)}"
    if rows:
        yield render(rows[:MAX_ROWS], {})
    if rows[MAX_ROWS:]:
        yield f"and {len(rows) - MAX_ROWS:,} more; --json lists all"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    labels = {k: v for k, v in row["labels"].items() if k not in ("units", "reason")}
    numbers = ("old", "new", "difference")
    return {
        **labels,
        "statistic": row["statistic"],
        **{name: row[name] for name in numbers},
        "in errors": row.get("standard_errors"),
    }


def _variables(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    units = {"unit": ""} if any(row.get("units", "1") != "1" for row in rows) else {}
    return [_variable(row, units) for row in rows]


def _variable(row: dict[str, Any], units: dict[str, str]) -> dict[str, Any]:
    if "absolute" not in row:
        return row
    at = ",".join(f"{dim}={label}" for dim, label in row["at"].items())
    if units and row["units"] != "1":
        units = {"unit": row["units"]}
    kept = {name: row[name] for name in ("variable", "nodes", "absolute", "relative")}
    return {**kept, "largest at": at, **units}
