"""Spans of time as people write them on a command line."""

from __future__ import annotations

import re

from curvflow.errors import RequestError

UNITS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}
PART = r"(\d+)\s*(d|h|min|m|s)"


def interval(text: str, *, of: str = "--every") -> int:
    """Read a span of time such as `6h`, `90min` or `1h30m`.

    Args:
        text: as written.
        of: what it belongs to, for messages.

    Returns:
        Seconds, 1 or more.

    Raises:
        RequestError: it is no span of time, or an empty one.
    """
    parts = re.findall(PART, text) if re.fullmatch(rf"({PART}\s*)+", text) else []
    seconds = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not seconds:
        raise RequestError(
            f"{of}: expected a span of time, got '{text}'. "
            "Write it as 30s, 15m, 6h or 1d."
        )
    return seconds


def shown_interval(seconds: int) -> str:
    """Write a span of time so that `interval` reads it back.

    Args:
        seconds: whole ones.

    Returns:
        Such as `6h` or `1h30m`.
    """
    found = ""
    for unit in "dhms":
        number, seconds = divmod(seconds, UNITS[unit])
        found += f"{number}{unit}" if number else ""
    return found or "0s"
