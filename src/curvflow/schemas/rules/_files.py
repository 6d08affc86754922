"""Specifications of rules, found by their files; no list is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from curvflow.schemas.by_name import modules_by_name
from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule

_ROOM = __name__.rpartition(".")[0]


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


def named_rule(value: object) -> type[Rule] | None:
    """Return the rule that a specification names, if a file has its name."""
    name = value.get("rule") if isinstance(value, Mapping) else None
    is_known = isinstance(name, str) and name in modules_by_name(_ROOM)
    return _rule_in_its_file(name) if is_known else None


@cache
def _rule_in_its_file(name: str) -> type[Rule] | None:
    rules = _rules_of(_module(name))
    return next((r for r in rules if r.model_fields["rule"].default == name), None)


def _module(name: str) -> ModuleType:
    return import_module(f"{_ROOM}.{modules_by_name(_ROOM)[name]}")


def _modules(but: Collection[str] = ()) -> Iterator[ModuleType]:
    return (_module(name) for name in modules_by_name(_ROOM) if name not in but)


def _rules_of(module: ModuleType) -> tuple[type[Rule], ...]:
    family: tuple[type[Rule], ...] = getattr(module, "RULES", ())
    return family or (module.RULE,)
