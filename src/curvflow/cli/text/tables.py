"""Truncated tables, columns of names, dates, and notices of missing results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import fill
from typing import TYPE_CHECKING

from curvflow.cli.arguments import echo
from curvflow.schemas.records.tables import Rows, group_by_fields, render, unmeasured
from curvflow.schemas.words import counted

if TYPE_CHECKING:
    from curvflow.flows.results.results import Results


MAX_ROWS = 40  # rows of one table


def truncated_tables(records: Rows, units: Mapping[str, str]) -> str:
    """Return tables as `render` does, without unmeasured quantities and late rows."""
    # Quantities that were measured at no node are left out, and of a long table the
    # last rows under each first label; what is left out is said.
    return "\n\n".join(_tables(records, units))


def _tables(records: Rows, units: Mapping[str, str]) -> Iterator[str]:
    names = unmeasured(records)
    kept = [row for row in records if row.get("quantity") not in names]
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


def _first(rows: Rows) -> Rows:
    """Return the first rows, as many under each label of the first field."""
    if len(rows) <= MAX_ROWS:
        return rows
    field = next(iter(rows[0]))
    labels = {str(row[field]) for row in rows}
    most, seen = max(MAX_ROWS // len(labels), 1), Counter[str]()
    kept = []
    for row in rows:
        seen[str(row[field])] += 1
        if seen[str(row[field])] <= most:
            kept.append(row)
    return kept[:MAX_ROWS]


WIDTH, GAP = 80, "  "


def name_columns(rows: Sequence[Sequence[str]], behind: int) -> list[str]:
    """Return rows of names in columns that leave `behind` characters on the line."""
    # If they do not fit into 80 characters, a long first name gets a line of its own.
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
    """Return an ISO 8601 time as `2031-05-04 15:40`, in UTC."""
    return f"{datetime.fromisoformat(written).astimezone(UTC):%Y-%m-%d %H:%M}"


def echo_missing(
    results: Results, stage: str, where: Mapping[str, str] | None = None
) -> None:
    """Print notices of failed, missing and removed results on stderr."""
    view = results.view(stage).where(where or {})
    counts = view.counts()
    if number := counts["removed"]:
        echo(
            f"{stage}: collection has removed the arrays of "
            f"{counted(number, 'result')}. "
            f"Run the study with --revive {stage} to compute them again.",
            err=True,
        )
    nodes = counted(len(view.points), "node")
    if number := counts["failed"]:
        echo(
            f"{stage}: failed at {number} of {nodes}. "
            f"`curvflow why STUDY {stage}` says why.",
            err=True,
        )
    if (number := counts["missing"]) and results.run is None:
        echo(f"{stage}: no result yet at {number} of {nodes}. Run the study.", err=True)
