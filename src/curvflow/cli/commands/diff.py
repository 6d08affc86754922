"""`curvflow diff`: what two runs of a study left, side by side."""

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
    opened,
    print_json,
)
from curvflow.cli.text.tables import in_front
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.results.diff import StageDiff
    from curvflow.stores.base import Index

MOST = 12  # rows told of per stage; all are in the JSON
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

    asked = opened(study, store, profile, overrides)
    name, index = asked.study.name, asked.store.index()
    one, two = _numbers(index, name, before, after)
    found = diff_runs(
        find_run(asked.store, name, one),
        find_run(asked.store, name, two),
        asked.store,
        stages=stage or (),
        rtol=rtol,
    )
    if as_json:
        stages = {each.stage: each.as_json() for each in found}
        print_json({"study": name, "before": one, "after": two, "stages": stages})
        return
    typer.echo(f"{name}: run {one} -> run {two}")
    typer.echo("\n".join(_lines(found, rtol)))


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


def _lines(found: Sequence[StageDiff], rtol: float) -> Iterator[str]:
    heads = ("added", "removed", "changed", "recomputed", "same")
    names = [("stage".ljust(24),), *((each.stage,) for each in found)]
    fronts = in_front(names, 11 * len(heads))
    yield fronts[0] + "".join(f"{head:>11}" for head in heads)
    for front, each in zip(fronts[1:], found, strict=True):
        yield front + "".join(f"{each.counts[h]:>11,}" for h in heads)
    if not any(each.differs for each in found):
        yield "no result differs"
    for each in found:
        yield from _stage(each, rtol)


def _stage(found: StageDiff, rtol: float) -> Iterator[str]:
    from curvflow.schemas.records.tables import render

    if not found.counts["changed"]:
        return
    yield ""
    told = [f"{n} {change}" for change, n in found.statuses.items()]
    if found.gone:
        told.append(f"{found.gone} whose numbers are there no more")
    rows = [_row(row) for row in found.rows]
    rows = rows or _variables(found.variables)
    if not rows and found.below_rtol:
        told.append(f"none by more than --rtol {rtol:g}")
    elif not rows and found.gone < found.counts["changed"]:
        told.append("no number in tables differs")
    told.insert(0, f"{found.counts['changed']} changed")
    yield f"{found.stage}: {'; '.join(told)}"
    if rows:
        yield render(rows[:MOST], {})
    if rows[MOST:]:
        yield f"and {len(rows) - MOST:,} more; --json lists all"


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
