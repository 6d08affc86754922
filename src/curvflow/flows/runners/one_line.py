"""Errors of other libraries, in one line."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """Return what an error says, or what it is if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
