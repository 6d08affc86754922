"""Numbers of bytes in words, for people."""

from __future__ import annotations

UNITS = ("kB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """Write a number of bytes with the unit that leaves one to three digits before it.

    Args:
        count: of bytes, 0 or more.

    Returns:
        Such as `0 B`, `999 B`, `1.5 kB`, `312 MB`, `1.2 GB`; powers of 1000.
    """
    if count < 999.5:
        return f"{count:.0f} B"
    for unit in UNITS:
        count /= 1000
        if count < 999.5 or unit == UNITS[-1]:
            break
    return f"{count:.1f} {unit}" if count < 9.95 else f"{count:,.0f} {unit}"
