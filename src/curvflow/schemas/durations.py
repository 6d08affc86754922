"""Spans of time in words, for people."""

from __future__ import annotations

MINUTE, HOUR = 60.0, 3600.0


def duration(seconds: float) -> str:
    """Write a span of time with the two units that matter.

    Args:
        seconds: how long, 0 or more.

    Returns:
        Such as `under 1 s`, `40 s`, `12 min`, `3 h 10 min`, `71 h`.
    """
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
