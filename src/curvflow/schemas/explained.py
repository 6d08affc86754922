"""The explanations of the built-in kinds, found by their files as the kinds are."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from curvflow.schemas import kinds
from curvflow.schemas.explanation import Explanation


@cache
def explanations() -> dict[str, Explanation]:
    """Return what is told of the built-in kinds, by name; not all need have it."""
    told = {}
    for info in pkgutil.walk_packages(kinds.__path__, f"{kinds.__name__}."):
        if not info.ispkg:
            module = import_module(info.name)
            if found := getattr(module, "EXPLANATION", None):
                told[module.KIND.name] = found
    return told
