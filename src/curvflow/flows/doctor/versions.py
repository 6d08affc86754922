"""Versions of what is installed, read without importing it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str | None:
    """Return the version of an installed package; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_below(found: str, bound: str) -> bool:
    """Tell whether a version is below a bound, `0.150.2` below `0.151`.

    Args:
        found: a version.
        bound: numbers joined by dots.

    Returns:
        Whether its leading numbers are.
    """
    return _numbers(found) < _numbers(bound)


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
