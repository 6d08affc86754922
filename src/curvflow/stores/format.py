"""The FORMAT file, by which a store is known, and the small JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from curvflow.errors import StoreFormatError

NUMBER = 1
CONTENT = b'{"store":"curvflow","format":%d}\n' % NUMBER


def check_format(found: bytes, location: str) -> None:
    """Refuse what is no store, or one of a newer format.

    Args:
        found: content of the FORMAT file.
        location: of the store.

    Raises:
        StoreFormatError: it says something else.
    """
    number = (parsed(found) or {}).get("format")
    if not isinstance(number, int):
        raise StoreFormatError(
            f"{location}/FORMAT: expected the format of a store, got something else. "
            "Name another store."
        )
    if number > NUMBER:
        raise StoreFormatError(
            f"{location}: expected store format {NUMBER}, got {number}. "
            "Update curvflow."
        )


def check_empty(names: Collection[str], location: str) -> None:
    """Refuse a place that has no FORMAT file and yet holds something.

    Args:
        names: what is there.
        location: of the store.

    Raises:
        StoreFormatError: there is something.
    """
    if names:
        raise StoreFormatError(
            f"{location}: expected a store or an empty folder, got a folder with "
            f"'{min(names)}' and no FORMAT file. Name another store."
        )


def parsed(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for what was cut short or is something else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
