"""Cells of texts, found and converted a block of whole lines at a time.

T is the number of cells of a block, L that of its lines.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import GZIP, LONE_RETURN, WRONG_WEIGHT
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.entries import (
    first_wrong_weight,
)

BLOCK_BYTES = 1 << 20
NEWLINE, RETURN, COMMA, QUOTE, MINUS, POINT, ZERO, UNDERSCORE = b'\n\r,"-.0_'
BLANK = 32  # and all below
COMMENTS = b"#%"
BOM = b"\xef\xbb\xbf"
# Digits of integers; any of so many fits into 64 bits.
MOST_DIGITS = 18
# Of a decimal number, with its point, that stay below 2^53.
EXACT_DIGITS = 15
POWERS = np.array([float(f"1e{place}") for place in range(EXACT_DIGITS + 1)])
# Between cells of a line whose quotation marks have been taken off.
UNIT_SEPARATOR = 31


class _Content(io.RawIOBase):
    """The bytes of a file, in memory or on disk, as a file to read from."""

    def __init__(self, content: Array) -> None:
        self._content, self._place = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._content[self._place : self._place + len(buffer)]
        buffer[: len(part)] = part.tobytes()
        self._place += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._place, len(self._content))[whence]
        self._place = max(0, start + offset)
        return self._place


def opened(content: Array) -> BinaryIO:
    """Return the bytes of a file as a file; compressed ones are unpacked as it is read.

    Args:
        content: in memory, or on disk.
    """
    file = io.BufferedReader(_Content(content), BLOCK_BYTES)
    is_packed = content[:2].tobytes() == GZIP
    return cast("BinaryIO", gzip.GzipFile(fileobj=file) if is_packed else file)


def texts(content: Array, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield a text in parts.

    Args:
        content: the bytes of the file, compressed or not.
        block_bytes: of each part.

    Raises:
        InputError: it cannot be unpacked.
    """
    file = opened(content)
    is_first = True
    while True:
        try:
            part = file.read(block_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"path: expected a .gz file, got one that is broken ({error}). "
                "Fetch or compress it again."
            ) from error
        if not part:
            return
        yield part.removeprefix(BOM) if is_first else part
        is_first = False


def blocks(
    content: Array, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, Array]]:
    """Yield a text in blocks of whole lines, each with the number of its first line.

    Args:
        content: the bytes of the file, compressed or not.
        block_bytes: read at once; a longer line is a longer block.

    Yields:
        Number and text of a block; its last line ends as well.

    Raises:
        InputError: it cannot be unpacked, or is no text.
    """
    number, rest = 1, []
    for part in texts(content, block_bytes):
        head, newline, tail = part.rpartition(b"\n")
        if not newline:
            rest.append(part)
            continue
        text = np.frombuffer(b"".join([*rest, head, newline]), np.uint8)
        rest = [tail]
        _check_text(text, number)
        yield number, text
        number += int(np.count_nonzero(text == NEWLINE))
    if last := b"".join(rest):
        text = np.frombuffer(last + b"\n", np.uint8)
        _check_text(text, number)
        yield number, text


def _check_text(text: Array, number: int) -> None:
    if not text.all():
        before = text[: int(np.argmin(text))]
        line = number + int(np.count_nonzero(before == NEWLINE))
        raise InputError(
            f"path: expected text, got the byte 0 in line {line}. "
            "Unpack the file, or write it as text."
        )
    returns = np.flatnonzero(text == RETURN)
    alone = returns[text[returns + 1] > BLANK]  # a block ends by a line feed
    if len(alone):
        line = number + int(np.count_nonzero(text[: alone[0]] == NEWLINE))
        raise InputError(LONE_RETURN.format(line))


@dataclass(frozen=True)
class Cells:
    """The cells of a block's lines, without blanks around them.

    Attributes:
        text: the block.
        starts: of each cell in it, (T,).
        ends: one behind the last byte of each, (T,).
        counts: cells of each line, (L,).
        lines: numbers of the lines, (L,).
    """

    text: Array
    starts: Array
    ends: Array
    counts: Array
    lines: Array

    def of(self, lines: Array) -> Cells:
        """Return those of some lines, by a flag for each."""
        chosen = np.repeat(lines, self.counts)
        return Cells(
            self.text,
            self.starts[chosen],
            self.ends[chosen],
            self.counts[lines],
            self.lines[lines],
        )

    def column(self, number: int) -> Cells:
        """Return one column of lines that all have the same number of cells."""
        each = int(self.counts[0])
        part = slice(number, None, each)
        ones = np.ones_like(self.counts)
        return Cells(self.text, self.starts[part], self.ends[part], ones, self.lines)

    def chosen(self, cells: Array) -> Cells:
        """Return some cells, by a flag for each, as lines of one cell."""
        lines = np.repeat(self.lines, self.counts)[cells]
        ones = np.ones(len(lines), np.int64)
        return Cells(self.text, self.starts[cells], self.ends[cells], ones, lines)

    def bytes(self) -> list[bytes]:
        """Return the cells themselves."""
        raw = self.text.tobytes()
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [raw[start:end] for start, end in places]

    def shown(self, cell: int) -> str:
        """Return one of them, and where it is, for messages."""
        line = np.repeat(self.lines, self.counts)[cell]
        text = self.text[self.starts[cell] : self.ends[cell]][:60].tobytes()
        return f"'{text.decode('utf-8', 'replace')}' in line {line}"


def cells_of(
    number: int, text: Array, *, has_commas: bool = False, keeps_blank: bool = False
) -> Cells:
    """Return the cells of a block without its comments.

    Args:
        number: of its first line.
        text: the block.
        has_commas: cells are parted by commas, else by blanks.
        keeps_blank: lines without cells are returned, which are left out else.
    """
    separator = COMMA
    if has_commas and (text == QUOTE).any():
        text, separator = _without_quotes(number, text), UNIT_SEPARATOR
    newlines = np.flatnonzero(text == NEWLINE)
    if has_commas:
        starts, ends, counts = _separated(text, newlines, separator)
    else:
        starts, ends, counts = _parted_by_blanks(text, newlines)
    cells = Cells(text, starts, ends, counts, number + np.arange(len(newlines)))
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    kept = np.full(len(counts), keeps_blank)
    kept[counts > 0] = True
    opening = text[starts[firsts]]
    is_comment = (opening == COMMENTS[0]) | (opening == COMMENTS[1])
    if has_commas:  # a line of blanks has one cell, and nothing in it
        is_comment |= (counts[counts > 0] == 1) & (starts[firsts] == ends[firsts])
    kept[counts > 0] = ~is_comment
    return cells if kept.all() else cells.of(kept)


def _parted_by_blanks(text: Array, newlines: Array) -> tuple[Array, Array, Array]:
    solid = text > BLANK
    changes = np.flatnonzero(solid[1:] != solid[:-1]) + 1
    if solid[0]:
        changes = np.concatenate([[0], changes])
    starts, ends = changes[0::2], changes[1::2]
    counts = np.diff(np.searchsorted(starts, newlines), prepend=0)
    return starts, ends, counts


def _separated(
    text: Array, newlines: Array, separator: int
) -> tuple[Array, Array, Array]:
    bounds = np.flatnonzero((text == separator) | (text == NEWLINE))
    starts, ends = np.concatenate([[0], bounds[:-1] + 1]), bounds
    counts = np.diff(np.searchsorted(bounds, newlines, side="right"), prepend=0)
    solid = np.flatnonzero((text > BLANK) & (text != separator))
    low, high = np.searchsorted(solid, starts), np.searchsorted(solid, ends)
    has_any = high > low
    if not len(solid):
        return starts, starts, counts
    begins = solid[np.minimum(low, len(solid) - 1)]
    return (
        np.where(has_any, begins, starts),
        np.where(has_any, solid[high - 1] + 1, starts),
        counts,
    )


def _without_quotes(number: int, text: Array) -> Array:
    """Return a block whose cells are read by the rules of CSV, line by line."""
    lines = []
    for at, line in enumerate(text.tobytes().split(b"\n")[:-1], start=number):
        try:
            rows = csv.reader([line.decode("latin-1")], strict=True)
            (row,) = [*rows] or [[]]
        except (csv.Error, ValueError) as error:
            raise InputError(
                f"path: expected the cells of a CSV file in line {at}, got "
                f"'{line[:60].decode('utf-8', 'replace')}' ({error}). "
                "Mend the line."
            ) from error
        lines.append(chr(UNIT_SEPARATOR).join(row).encode("latin-1"))
    return np.frombuffer(b"\n".join([*lines, b""]), np.uint8)


def check_counts(cells: Cells, expected: int) -> None:
    """Refuse lines of more or fewer cells.

    Raises:
        InputError: there is one.
    """
    wrong = cells.counts != expected
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"path: expected {expected} cells in line {cells.lines[at]}, got "
            f"{cells.counts[at]}. Mend the line."
        )


def integers(cells: Cells) -> tuple[Array, Array]:
    """Return cells as integers, and which of them are integers, (T,) each.

    Only what is written as Python writes it is one, so that `007` is a name.
    """
    text, starts = cells.text, cells.starts
    lengths = cells.ends - starts
    values = np.zeros(len(starts), np.int64)
    if not len(starts):
        return values, np.ones(0, bool)
    is_negative = text[starts] == MINUS
    if is_negative.any():
        starts, lengths = starts + is_negative, lengths - is_negative
    sound = (lengths > 0) & (lengths <= MOST_DIGITS)
    starts = np.where(sound, starts, 0)
    lengths = np.where(sound, lengths, 0)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for place in range(longest):
        at = starts + place
        if place >= shortest:
            at = np.minimum(at, len(text) - 1)
        digits = text[at] - np.uint8(ZERO)
        more = values * 10 + digits
        if place < shortest:
            values, sound = more, sound & (digits <= 9)
            continue
        is_within = place < lengths
        values = np.where(is_within, more, values)
        sound &= (digits <= 9) | ~is_within
    is_padded = (text[starts] == ZERO) & ((lengths > 1) | is_negative)
    return np.where(is_negative, -values, values), sound & ~is_padded


def whole_numbers(cells: Cells, first: int, last: int, what: str) -> Array:
    """Return cells as integers of a range, (T,).

    Args:
        cells: these.
        first: the least.
        last: the largest.
        what: they are, for messages.

    Raises:
        InputError: one is none.
    """
    values, sound = integers(cells)
    sound &= (values >= first) & (values <= last)
    if not sound.all():
        got = cells.shown(int(np.argmin(sound)))
        raise InputError(
            f"path: expected {what} from {first} to {last}, got {got}. Mend the file."
        )
    return values


def weights_of(cells: Cells) -> Array:
    """Return cells as weights, (T,).

    Raises:
        InputError: one is no number, or no weight that an edge can have.
    """
    weights, sound = _decimals(cells)
    if not sound.all():
        weights[~sound] = _floats(cells.chosen(~sound))
    wrong = first_wrong_weight(weights)
    if wrong is not None:
        line = np.repeat(cells.lines, cells.counts)[wrong]
        got = f"{weights[wrong]:g} in line {line}"
        raise InputError(WRONG_WEIGHT.format(got))
    return weights


def _decimals(cells: Cells) -> tuple[Array, Array]:
    """Return cells such as `12.5` as numbers, and which of them are such, (T,) each.

    So many digits make an exact integer, and its quotient by a power of ten is rounded
    once, as `float` rounds it.
    """
    text, lengths = cells.text, cells.ends - cells.starts
    sound = (lengths > 0) & (lengths <= EXACT_DIGITS)
    lengths = np.where(sound, lengths, 0)
    values = np.zeros(len(lengths), np.int64)
    places = np.zeros(len(lengths), np.int64)
    num_points = np.zeros(len(lengths), np.int64)
    for place in range(int(lengths.max(initial=0))):
        is_within = place < lengths
        byte = text[np.minimum(cells.starts + place, len(text) - 1)]
        is_point = is_within & (byte == POINT)
        is_digit = is_within & ~is_point
        digits = byte - np.uint8(ZERO)
        sound &= ~is_digit | (digits <= 9)
        values = np.where(is_digit, values * 10 + digits, values)
        places += is_digit & (num_points > 0)
        num_points += is_point
    sound &= (num_points <= 1) & (num_points < lengths)
    return values / POWERS[places], sound


def _floats(cells: Cells) -> Array:
    content = cells.bytes()
    convert = number_of if (cells.text == UNDERSCORE).any() else float
    try:
        return np.array(list(map(convert, content)))
    except ValueError:
        got = cells.shown(next(n for n, cell in enumerate(content) if _is_none(cell)))
        raise InputError(
            f"path: expected a number as weight, got {got}. Mend it, or leave it out."
        ) from None


def number_of(cell: bytes | str) -> float:
    """Return a cell as a number; ValueError if it is none."""
    text = cell if isinstance(cell, str) else cell.decode("latin-1")
    return float(text.replace("_", "?"))  # Python takes these between digits


def _is_none(cell: bytes) -> bool:
    try:
        number_of(cell)
    except ValueError:
        return True
    return False
