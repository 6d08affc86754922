"""Points in time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def minute(written: str) -> str:
    """Shorten a point in time.

    Args:
        written: in ISO 8601, as the log has it.

    Returns:
        Such as `2031-05-04 15:40`, in UTC.
    """
    return f"{datetime.fromisoformat(written).astimezone(UTC):%Y-%m-%d %H:%M}"
