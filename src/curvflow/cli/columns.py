"""Names of stages and kinds in front of a line, however long they are."""

from __future__ import annotations

from collections.abc import Sequence

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
