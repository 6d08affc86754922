"""Specifications of rules, found by their files; no list is kept."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterator
from importlib import import_module
from types import ModuleType

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


def specifications(but: Collection[str] = ()) -> dict[str, type[Rule]]:
    """Return the specification of every rule by its name, sorted.

    Args:
        but: files that are left out.
    """
    rules = [rule for module in _modules(but) for rule in _rules_of(module)]
    return dict(sorted((rule.model_fields["rule"].default, rule) for rule in rules))


def sections() -> dict[str, Section]:
    """Return the section of the documentation of every rule, family by family."""
    texts: dict[str, Section] = {}
    for module in _modules():
        names = [rule.model_fields["rule"].default for rule in _rules_of(module)]
        explained = getattr(module, "EXPLANATIONS", None) or (module.EXPLANATION,)
        texts |= dict(zip(names, explained, strict=True))
    return texts


def _modules(but: Collection[str] = ()) -> Iterator[ModuleType]:
    package = import_module(__name__.rpartition(".")[0])
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_") and info.name not in but:
            yield import_module(f"{package.__name__}.{info.name}")


def _rules_of(module: ModuleType) -> tuple[type[Rule], ...]:
    family: tuple[type[Rule], ...] = getattr(module, "RULES", ())
    return family or (module.RULE,)
