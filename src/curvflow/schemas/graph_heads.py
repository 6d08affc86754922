"""First lines of files of graphs, which say what follows.

Planning refuses by them what it can; a reader goes on from them.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.shared.graphs import MOST_NODES
from curvflow.schemas.nodes import Array

GZIP = b"\x1f\x8b"
BANNER = "%%matrixmarket"
SYMMETRIES = ("symmetric", "general")  # of a matrix that can be symmetric
HEAD_BYTES = 1 << 16
COMMENTS = ("#", "%")
# Names of columns that begin files of names, which nothing else tells from an edge.
ENDS = re.compile(
    r"(source|target|from|to|src|dst|head|tail|i|j|u|v)([ _]?(node|id|node ?id))?"
    r"|(node|id|vertex)[ _]?[ab12]",
    re.IGNORECASE,
)
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")
WEIGHTS = ("weight", "weights", "w")
# What is said of a weight that no edge can have, and where it is.
WRONG_WEIGHT = (
    "path: expected finite positive weights, got {}. Remove the edge, or mend it."
)
# Said of a line that another program may take for several.
LONE_RETURN = (
    "path: expected lines that end by a line feed, got a carriage return within line "
    "{}. Save the file with such ends."
)
# Said of a file that states its direction.
DIRECTED = (
    "directed: expected an undirected graph, got a file that says 'directed 1'. Set "
    "directed: symmetrise."
)


def head_of(content: Array) -> list[str]:
    """Return the first lines of a text, compressed or not.

    Args:
        content: the bytes of the file.

    Raises:
        InputError: the file is empty, or broken.
    """
    raw = content[:HEAD_BYTES].tobytes()
    is_whole = len(content) <= HEAD_BYTES
    if raw[:2] == GZIP:
        try:
            raw, _, has_all = unpacked(raw, HEAD_BYTES)
        except zlib.error as error:
            raise InputError(
                f"path: expected a .gz file, got one that is broken ({error}). "
                "Compress it again."
            ) from error
        is_whole &= has_all
    lines = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")
    if not is_whole and len(lines) > 1:
        lines.pop()  # cut
    if not any(line.strip() for line in lines):
        raise InputError(
            "path: expected a graph, got an empty file. Take a file with edges."
        )
    lines = [line.rstrip("\r") for line in lines]
    for number, line in enumerate(lines, start=1):
        if "\r" in line:
            raise InputError(LONE_RETURN.format(number))
    return lines


def unpacked(raw: bytes, most: int) -> tuple[bytes, int, bool]:
    """Unpack the beginning of a .gz file, which may have several parts.

    Args:
        raw: its first bytes.
        most: bytes of the text.

    Returns:
        The text, how many of the bytes it is of, and whether these are all.

    Raises:
        zlib.error: they are none of such a file.
    """
    text, rest, is_whole = b"", raw, True
    while rest and len(text) < most:
        unpacker = zlib.decompressobj(wbits=31)
        text += unpacker.decompress(rest, most - len(text))
        is_whole = unpacker.eof
        rest = unpacker.unused_data.lstrip(b"\0") or unpacker.unconsumed_tail
        if not is_whole:
            break
    return text, len(raw) - len(rest), is_whole and not rest


def _data_lines(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with their numbers."""
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith(COMMENTS):
            yield number, line


def _sizes(
    lines: Sequence[str], counts: Sequence[int], expected: str
) -> tuple[int, ...]:
    """Return the number of the first line with data, and its numbers."""
    number, line = next(_data_lines(lines), (len(lines), ""))
    words = line.split()
    is_sound = all(re.fullmatch(r"[0-9]{1,18}", word) for word in words)
    if len(words) not in counts or not is_sound:
        raise InputError(
            f"path: expected {expected} in line {number}, got '{line.strip()[:60]}'. "
            "Correct the line."
        )
    return (number, *map(int, words))


def _check_weights(
    lines: Sequence[str], after: int, column: int, *, has_commas: bool = False
) -> None:
    """Refuse weights that no edge can have, below a line; all else is the reader's."""
    for number, line in _data_lines(lines):
        cells = cells_of(line, has_commas=has_commas)
        if number <= after or len(cells) <= column:
            continue
        try:
            weight = float(cells[column])
        except ValueError:
            continue
        if not 0 < weight < float("inf"):
            raise InputError(WRONG_WEIGHT.format(f"{weight:g} in line {number}"))


def check_size(size: int) -> None:
    """Refuse a number of nodes.

    Raises:
        InputError: there are none, or more than neighbours can name.
    """
    if not 0 < size <= MOST_NODES:
        raise InputError(
            f"path: expected a graph of 1 to {MOST_NODES} nodes, got {size}. Take "
            "another graph."
        )


@dataclass(frozen=True)
class MatrixHead:
    """Beginning of a file of a sparse matrix, one entry a line.

    Attributes:
        line: number of the line with the sizes.
        size: rows, D.
        entries: that follow.
        first: number of the first row.
        has_values: each entry has a value.
        is_symmetric: the entries on and below the diagonal stand for all.
    """

    line: int
    size: int
    entries: int
    first: int
    has_values: bool
    is_symmetric: bool


def matrix_market_head(lines: Sequence[str]) -> MatrixHead:
    """Return what the beginning of a MatrixMarket file says.

    Args:
        lines: the first of the file.

    Raises:
        InputError: it is another, or its matrix is none of a graph.
    """
    entries, symmetry = matrix_market_banner(lines[0])
    if entries not in ("pattern", "real", "integer") or symmetry not in SYMMETRIES:
        raise InputError(
            "path: expected pattern, real or integer entries, symmetric or general, "
            f"got {entries} {symmetry}. Save the matrix in such a form."
        )
    line, *sizes = _sizes(lines, [3], "rows, columns and entries")
    if entries != "pattern":
        _check_weights(lines, line, 2)
    return _matrix_head(line, sizes, 1, entries != "pattern", symmetry == "symmetric")


def matrix_market_banner(line: str) -> tuple[str, str]:
    """Return what the first line of a MatrixMarket file says of entries and symmetry.

    Args:
        line: the first of the file.

    Raises:
        InputError: it is another, or its matrix has entries for zeros.
    """
    words = line.lower().split()
    if len(words) != 5 or words[:3] != [BANNER, "matrix", "coordinate"]:
        raise InputError(
            "path: expected a file that begins with '%%MatrixMarket matrix "
            f"coordinate', got '{line[:60]}'. Set format to what the file is."
        )
    return words[3], words[4]


def smat_head(lines: Sequence[str]) -> MatrixHead:
    """Return what the beginning of a `.smat` file says.

    Args:
        lines: the first of the file.

    Raises:
        InputError: it is another, or its matrix is not square.
    """
    line, *sizes = _sizes(lines, [3], "rows, columns and entries")
    _check_weights(lines, line, 2)
    return _matrix_head(line, sizes, 0, has_values=True, is_symmetric=False)


def _matrix_head(
    line: int, sizes: Sequence[int], first: int, has_values: bool, is_symmetric: bool
) -> MatrixHead:
    rows, columns, entries = sizes
    if rows != columns:
        raise InputError(
            f"path: expected a square matrix, got {rows} rows and {columns} columns. "
            "Take the matrix of a graph."
        )
    check_size(rows)
    return MatrixHead(line, rows, entries, first, has_values, is_symmetric)


@dataclass(frozen=True)
class MetisHead:
    """Beginning of a METIS file, whose next lines are one for each node.

    Attributes:
        line: number of the line with the sizes.
        size: nodes, D.
        num_edges: each counted once.
        skipped: numbers at the beginning of each line, which belong to the node.
        has_weights: each neighbour is followed by the weight of the edge.
    """

    line: int
    size: int
    num_edges: int
    skipped: int
    has_weights: bool


def metis_head(lines: Sequence[str]) -> MetisHead:
    """Return what the beginning of a METIS file says.

    Args:
        lines: the first of the file.

    Raises:
        InputError: it is another.
    """
    expected = "nodes, edges and the code of the format"
    line, size, num_edges, *more = _sizes(lines, [2, 3, 4], expected)
    check_size(size)
    code = more[0] if more else 0
    if code not in (0, 1, 10, 11, 100, 101, 110, 111):
        raise InputError(
            "path: expected three digits of 0 and 1 as the code of the format in line "
            f"{line}, got {code}. Correct the line."
        )
    num_weights = (more[1] if len(more) > 1 else 1) if code // 10 % 10 else 0
    if num_weights > 1 << 16:
        raise InputError(
            f"path: expected a few weights a node, got {num_weights}. Take weights of "
            "edges alone."
        )
    return MetisHead(line, size, num_edges, code // 100 + num_weights, bool(code % 10))


def check_gml(lines: Sequence[str], *, refuses_directed: bool) -> None:
    """Refuse a file that does not begin as GML, or states a graph that is refused.

    Args:
        lines: the first of the file.
        refuses_directed: a graph that says it is directed is refused.

    Raises:
        InputError: there is no graph, or it is directed.
    """
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    before = re.sub(r'"[^"]*"', '""', text).partition("[")[0].split()
    if not before or before[-1].lower() != "graph":
        raise InputError(
            "path: expected 'graph [' at the beginning of a GML file, got "
            f"'{lines[0][:60]}'. Set format to what the file is."
        )
    opening = re.split(r"\bnode\b|\bedge\b", text.partition("[")[2])[0]
    if refuses_directed and re.search(r"\bdirected\s+1\b", opening):
        raise InputError(DIRECTED)


@dataclass(frozen=True)
class EdgesHead:
    """Beginning of an edge list.

    Attributes:
        header: number of the line with the names of the columns; 0 if there is none.
        has_commas: cells are parted by commas, else by blanks.
        num_cells: of each line.
        first: number of the first line with an edge.
        columns: positions of the two ends, and of the weight if there is one.
    """

    header: int
    has_commas: bool
    num_cells: int
    first: int
    columns: tuple[int, ...]


def cells_of(line: str, *, has_commas: bool) -> list[str]:
    """Return the cells of a line, without blanks and quotation marks around them."""
    if not has_commas:
        return line.split()
    try:
        (cells,) = csv.reader([line])
    except (csv.Error, ValueError):
        cells = line.split(",")  # to be refused where it is read
    return [cell.strip() for cell in cells]


def edges_head(lines: Sequence[str], columns: Sequence[int | str] | None) -> EdgesHead:
    """Return what the beginning of an edge list says, and where columns are.

    Args:
        lines: the first of the file.
        columns: names, or numbers from 1, of two ends and maybe a weight.

    Raises:
        InputError: the file is of another form, or has no such columns.
    """
    if lines[0].lower().startswith(BANNER):
        raise InputError(
            "format: expected an edge list, got a file that begins as MatrixMarket. Set"
            " format: matrix_market."
        )
    data = [line for line, _ in zip(_data_lines(lines), range(2), strict=False)]
    if not data:
        raise InputError(
            "path: expected an edge in a line, got comments alone. Take a file with "
            "edges."
        )
    (number, line), (after, second) = data[0], data[-1]
    has_commas = "," in line
    cells = cells_of(line, has_commas=has_commas)
    if len(cells) < 2:
        raise InputError(
            f"path: expected two ends of an edge in line {number}, got '{line[:60]}'. "
            "Part cells by commas, blanks or tabs."
        )
    is_header = _is_header(cells, cells_of(second, has_commas=has_commas), columns)
    if is_header and len(data) < 2:
        raise InputError(
            "path: expected an edge below the names of columns, got none. Take a file "
            "with edges."
        )
    chosen = _columns(cells, columns, is_header)
    header, first = (number, after) if is_header else (0, number)
    if len(chosen) > 2:
        _check_weights(lines, header, chosen[2], has_commas=has_commas)
    return EdgesHead(header, has_commas, len(cells), first, chosen)


def _is_header(
    cells: Sequence[str], second: Sequence[str], columns: Sequence[int | str] | None
) -> bool:
    """Return whether the first line names columns and is no edge."""
    if columns and any(isinstance(column, str) for column in columns):
        return True
    ends = [int(column) - 1 for column in (columns or (1, 2))[:2]]
    if max(ends) >= min(len(cells), len(second)):
        return False
    if any(INTEGER.fullmatch(cells[end]) for end in ends):
        return False
    below = all(INTEGER.fullmatch(second[end]) for end in ends)
    return below or all(ENDS.fullmatch(cells[end]) for end in ends)


def _columns(
    cells: Sequence[str], columns: Sequence[int | str] | None, is_header: bool
) -> tuple[int, ...]:
    if columns is not None:
        return tuple(_position(column, cells) for column in columns)
    if len(cells) == 2:
        return (0, 1)
    if is_header:
        for at, name in enumerate(cells[2:], start=2):
            if name.lower() in WEIGHTS:
                return (0, 1, at)
    raise InputError(
        f"columns: expected the columns of the two ends, and of the weight if there is "
        f"one, of {len(cells)} columns, got none. Set columns: [1, 2], or [1, 2, 3]."
    )


def _position(column: int | str, cells: Sequence[str]) -> int:
    if isinstance(column, str):
        if column not in cells:
            raise InputError(
                f"columns: expected a column of the first line, got '{column}'. "
                f"{nearest(column, cells)}"
            )
        return list(cells).index(column)
    if column > len(cells):
        raise InputError(
            f"columns: expected one of the {len(cells)} columns, got {column}. Number "
            "them from 1."
        )
    return column - 1
