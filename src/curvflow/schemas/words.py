"""Text for counts, durations, sizes and intervals; near names, and escaped text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from curvflow.errors import RequestError


def printable(text: str) -> str:
    r"""Return a text in which nothing can act on a terminal or page; newlines stay.

    What `str.isprintable` refuses is written as `\x1b` or `\u202e`: control characters,
    those of U+0080 to U+009F too, marks that reverse or hide text, separators of lines,
    spaces other than the plain one, surrogates, and code points that mean nothing.
    """
    if text.isprintable():
        return text
    return "\n".join(map(_escaped, text.split("\n")))


def one_line(text: object) -> str:
    """Return a text, such as an error's, on one line."""
    return " ".join(str(text).split())


def error_line(error: BaseException) -> str:
    """Return an error's message on one line, or its type if it has none."""
    return one_line(error) or type(error).__name__


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in line
    )


def node_label(stage: str, coords: Mapping[str, object]) -> str:
    """Return `stage[axis=value,...]`, or the stage alone if it has no dimensions."""
    inside = ",".join(f"{axis}={label}" for axis, label in coords.items())
    return f"{stage}[{inside}]" if inside else stage


def counted(number: int, noun: str) -> str:
    """Return a count with its noun, such as `1 node` and `2,000 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def collision_note(numbers: Sequence[int]) -> str:
    """State on one line that entries of a merged log have collided."""
    more = f", and {counted(len(numbers) - 1, 'time')} after it" * (len(numbers) > 1)
    return (
        f"logs of stores that had gone on apart were merged (at commit {numbers[0]}"
        f"{more}): of two entries one was kept; runs and pins of the other are gone, "
        "and results still missing run again"
    )


def short_number(number: float, digits: int = 6) -> str:
    """Return a number as short text, such as `1000`, `0.01` or `1e-5`.

    Args:
        number: any.
        digits: at most; further ones are rounded away.
    """
    rounded = float(f"{number:.{digits - 1}e}")
    text, _, power = f"{rounded:g}".partition("e")
    return f"{text}e{int(power)}" if power else text


def span_text(values: Sequence[float], noun: str = "estimate") -> str:
    """Return the span of settings, such as `5.6 to 17.7 in 9 estimates`.

    Values that agree to three digits are one, such as `5`.
    """
    least, most = (short_number(end(values), 3) for end in (min, max))
    number = counted(len(values), noun)
    return least if least == most else f"{least} to {most} in {number}"


MINUTE, HOUR = 60.0, 3600.0


def duration(seconds: float) -> str:
    """Return a duration as text: `under 1 s`, `40 s`, `12 min`, `3 h 10 min`."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 1.5 * MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / MINUTE)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours >= 24 or not rest:
        return f"{round(seconds / HOUR):,} h"
    return f"{hours} h {rest} min"


BYTE_UNITS = ("kB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """Return bytes as text, powers of 1000: `0 B`, `1.5 kB`, `312 MB`, `1.2 GB`."""
    if count < 999.5:
        return f"{count:.0f} B"
    for unit in BYTE_UNITS:
        count /= 1000
        if count < 999.5 or unit == BYTE_UNITS[-1]:
            break
    return f"{count:.1f} {unit}" if count < 9.95 else f"{count:,.0f} {unit}"


TIME_UNITS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}
PART = r"(\d+)\s*(d|h|min|m|s)"


def parse_interval(text: str, *, of: str = "--every") -> int:
    """Return the seconds, 1 or more, of an interval such as `6h`, `90min`, `1h30m`."""
    parts = re.findall(PART, text) if re.fullmatch(rf"({PART}\s*)+", text) else []
    seconds = sum(int(number) * TIME_UNITS[unit] for number, unit in parts)
    if not seconds:
        raise RequestError(
            f"{of}: expected a span of time, got '{text}'. "
            "Write it as 30s, 15m, 6h or 1d."
        )
    return seconds


def format_interval(seconds: int) -> str:
    """Return seconds as text that `parse_interval` reads, such as `1h30m`."""
    text = ""
    for unit in "dhms":
        number, seconds = divmod(seconds, TIME_UNITS[unit])
        text += f"{number}{unit}" if number else ""
    return text or "0s"
