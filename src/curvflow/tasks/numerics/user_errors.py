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


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of this package, of torch and of other libraries."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [__file__.rpartition("tasks")[0].rstrip("/\\"), torch.__path__[0]]
    folders += [sysconfig.get_path(kind) for kind in kinds]
    return tuple(f"{folder}/".replace("\\", "/") for folder in folders)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or "no message").splitlines()[0]


def summary(error: BaseException) -> str:
    """Return the type of an error, and the first line of what it says."""
    return f"{type(error).__name__}: {first_line(error)}"
