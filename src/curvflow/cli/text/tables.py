"""Tables that a terminal holds, dates, columns, and notices of absent values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import fill
from typing import TYPE_CHECKING

import typer

from curvflow.schemas.records.tables import Rows, group_by_fields, render
from curvflow.schemas.words import counted

if TYPE_CHECKING:
    from curvflow.flows.results.results import Results


MOST = 40  # rows of one table

# Where one of these is not 0, something was measured or went wrong. What is NaN at
# every node, of which none diverged, is what a study has not: a loss on no validation
# data.
COUNTS = ("count", "diverged", "unconverged")


def shortened(records: Rows, units: Mapping[str, str]) -> str:
    """Lay records out as `render` does, without those that tell least.

    Quantities that were measured at no node are left out, and of a long table the last
    rows under each first label; what is left out is said.

    Args:
        records: as from `schemas.records`.
        units: units per field.

    Returns:
        Several lines.
    """
    return "\n\n".join(_tables(records, units))


def _tables(records: Rows, units: Mapping[str, str]) -> Iterator[str]:
    kept, names = _measured(records)
    for rows in group_by_fields(kept, units):
        shown = _first(rows)
        text = render(shown, units)
        if more := len(rows) - len(shown):
            text += f"\nand {counted(more, 'more row')}; --all prints all"
        yield text
    if names:
        yield fill(
            f"left out, measured at no node: {', '.join(sorted(names))}; "
            "--all prints all",
            width=80,
            break_long_words=False,
        )


def _measured(records: Rows) -> tuple[Rows, set[str]]:
    """Return the records of quantities that any node has, and the other names."""
    counted = [row for row in records if "quantity" in row and "count" in row]
    found = {row["quantity"] for row in counted if any(map(row.get, COUNTS))}
    names = {row["quantity"] for row in counted} - found
    if not found:  # nothing was measured, which is what there is to show
        return records, set()
    return [row for row in records if row.get("quantity") not in names], names


def _first(rows: Rows) -> Rows:
    """Return the first rows, as many under each label of the first field."""
    if len(rows) <= MOST:
        return rows
    field = next(iter(rows[0]))
    labels = {str(row[field]) for row in rows}
    most, seen = max(MOST // len(labels), 1), Counter[str]()
    kept = []
    for row in rows:
        seen[str(row[field])] += 1
        if seen[str(row[field])] <= most:
            kept.append(row)
    return kept[:MOST]


WIDTH, GAP = 80, "  "


def in_front(rows: Sequence[Sequence[str]], behind: int) -> list[str]:
    """Lay names out in columns, each row of one width.

    Args:
        rows: names per row, as many in each.
        behind: characters that stand behind them on the line.

    Returns:
        A text per row. Where all of it does not fit into 80 columns, a long first name
        has a line of its own above the others.
    """
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    room = WIDTH - behind - sum(width + len(GAP) for width in others)
    # Two characters, at least, by which the rest stands below its name.
    width = min(first, max(room - len(GAP), 2))
    return [_row(row, [width, *others]) for row in rows]


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    above, first = "", row[0].rstrip()  # a heading may be padded, to widen its column
    if len(first) > widths[0]:
        above, first = f"{first}\n", ""
    padded = zip([first, *row[1:]], widths, strict=True)
    return above + GAP.join(name.ljust(width) for name, width in padded)


def minute(written: str) -> str:
    """Shorten a point in time.

    Args:
        written: in ISO 8601, as the log has it.

    Returns:
        Such as `2031-05-04 15:40`, in UTC.
    """
    return f"{datetime.fromisoformat(written).astimezone(UTC):%Y-%m-%d %H:%M}"


def tell_absent(
    results: Results, stage: str, where: Mapping[str, str] | None = None
) -> None:
    """Tell of results that failed, are to come, or whose arrays collection removed.

    Args:
        results: of the study.
        stage: name of the stage.
        where: dimension to label; all nodes by default.
    """
    view = results.view(stage).where(where or {})
    counts = view.counts()
    if number := counts["removed"]:
        typer.echo(
            f"{stage}: collection has removed the arrays of "
            f"{counted(number, 'result')}. "
            f"Run the study with --revive {stage} to compute them again.",
            err=True,
        )
    nodes = counted(len(view.points), "node")
    if number := counts["failed"]:
        typer.echo(
            f"{stage}: failed at {number} of {nodes}. "
            f"`curvflow why STUDY {stage}` says why.",
            err=True,
        )
    if (number := counts["missing"]) and results.run is None:
        typer.echo(
            f"{stage}: no result yet at {number} of {nodes}. Run the study.", err=True
        )
