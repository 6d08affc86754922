"""Records as tables of a length that a terminal holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import fill

from curvflow.schemas.records.tables import Rows, alike, render
from curvflow.schemas.words import counted

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
    for rows in alike(kept, units):
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
