"""Texts that a user names by their path."""

from __future__ import annotations

from pathlib import Path

from curvflow.errors import RequestError


def read_text(file: Path, *, what: str, remedy: str) -> str:
    """Read a text file, or say on one line why it cannot be read.

    Args:
        file: its path.
        what: it should be.
        remedy: what to do if it is not there.

    Returns:
        The text.

    Raises:
        RequestError: it cannot be read, or is no UTF-8 text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise RequestError(
            f"{file}: expected {what}, got none: {reason}. {remedy}"
        ) from error
