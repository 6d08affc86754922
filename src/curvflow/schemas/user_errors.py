"""Messages of errors of a user's own code, and where they arose."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from curvflow.errors import PACKAGE, summary


def place_of(error: BaseException) -> str:
    """Return the user's file and line where an error arose, or "".

    Args:
        error: raised by code of the user's own, or by a library that it called.

    Returns:
        `nets.py:12`, the innermost line that is neither of this package nor of a
        library.
    """
    frames = traceback.walk_tb(error.__traceback__)
    places = [(frame.f_code.co_filename, line) for frame, line in frames]
    if isinstance(error, SyntaxError) and error.filename:  # of a file that is imported
        places.append((error.filename, error.lineno or 1))
    return _last(places)


def before(error: BaseException) -> str:
    """Return the place of an error as it stands in a message, or ""."""
    place = place_of(error)
    return f"{place}: " if place else ""


def before_function(function: Callable[..., Any]) -> str:
    """Return the place of a function of the user's own in a message, or ""."""
    plain = inspect.unwrap(function)
    made_by = vars(plain).get("__init__") if isinstance(plain, type) else plain
    code = getattr(made_by, "__code__", None)
    place = _last([(code.co_filename, code.co_firstlineno)]) if code else ""
    return f"{place}: " if place else ""


def _last(places: Iterable[tuple[str, int]]) -> str:
    """Return the last of these that is in a file of the user's, or ""."""
    plain = ((file.replace("\\", "/"), line) for file, line in places)
    last, libraries = "", _libraries()
    for file, line in plain:
        # Code that is in no file has a name such as <string>.
        if not file.startswith(("<", *libraries)):
            last = f"{file.rpartition('/')[2]}:{line}"
    return last


def _libraries() -> tuple[str, ...]:
    """Return the folders of this package, of torch and of other libraries."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [PACKAGE.rstrip("/\\"), *map(sysconfig.get_path, kinds)]
    folders += getattr(sys.modules.get("torch"), "__path__", ())  # wherever it lies
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
