"""Messages of errors of a user's own code, and where they arose."""

from __future__ import annotations

import sysconfig
import traceback
from functools import cache

import torch


def place_of(error: BaseException) -> str:
    """Return the user's file and line where an error arose, or "".

    Args:
        error: raised by code of the user's own, or by a library that it called.

    Returns:
        `nets.py:12`, the innermost line that is neither of this package nor of a
        library.
    """
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename.replace("\\", "/")
        # Code that is in no file has a name such as <string>.
        if not file.startswith(("<", *_libraries())):
            place = f"{file.rpartition('/')[2]}:{line}"
    return place


def before(error: BaseException) -> str:
    """Return the place of an error as it stands in a message, or ""."""
    place = place_of(error)
    return f"{place}: " if place else ""


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of this package, of torch and of other libraries."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [__file__.rpartition("tasks")[0].rstrip("/\\"), torch.__path__[0]]
    folders += [sysconfig.get_path(kind) for kind in kinds]
    return tuple(f"{folder}/".replace("\\", "/") for folder in folders)


def not_returned(field: str, name: str, wanted: str, error: Exception) -> str:
    """Return the message that refuses a user's function that failed.

    Args:
        field: the parameter that names it.
        name: of the function.
        wanted: what it should return.
        error: what it raised.
    """
    return (
        f"{field}: {before(error)}expected {name} to return {wanted}, got "
        f"{summary(error)}. Correct it."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or "no message").splitlines()[0]


def summary(error: BaseException) -> str:
    """Return the type of an error, and the first line of what it says."""
    return f"{type(error).__name__}: {first_line(error)}"
