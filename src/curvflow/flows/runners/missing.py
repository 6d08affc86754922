"""Tell errors of software that a worker lacks from others."""

from __future__ import annotations

from pickle import UnpicklingError

MISSING = (ImportError, AttributeError, UnpicklingError)
NAMES = ("ModuleNotFoundError", *(one.__name__ for one in MISSING))
NAMED = tuple(f"{name}(" for name in NAMES)


def is_missing(error: BaseException) -> bool:
    """Return whether a worker did not know what it was sent.

    Args:
        error: as Dask hands it over; it makes a plain one of some, naming what it was.

    Returns:
        Whether there is something to install.
    """
    return isinstance(error, MISSING) or str(error).startswith(NAMED)
