"""Settings that others leave without effect, by the parameters that have them.

Functions, and not methods of `Params`: what that class has is code of every result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from curvflow.schemas.params import Params


@dataclass(frozen=True)
class Idle:
    """A setting that others leave without effect.

    Attributes:
        path: of the field, from the parameters.
        value: of the field.
        is_default: whether that is its default.
        cause: the settings that do, such as `inverse exact, which splits no damping`.
        remedy: those that would give it one, such as `inverse factored`.
    """

    path: tuple[str, ...]
    value: Any
    is_default: bool
    cause: str
    remedy: str

    def message(self, value: str) -> str:
        """Return `<a> cannot be combined with <b>`, of a value as it is written."""
        return f"{self.path[-1]} {value} cannot be combined with {self.cause}"

    @property
    def hint(self) -> str:
        """The remedy."""
        return f"Remove {self.path[-1]}, or take {self.remedy}."


@runtime_checkable
class TellsIdle(Protocol):
    """Parameters some of whose settings others may leave without effect."""

    def idle_settings(self) -> Iterator[Idle]:
        """Yield those of the parameters' own, whatever their values."""


def idle_settings(params: Params) -> Iterator[Idle]:
    """Yield settings that others leave without effect, of parameters within too.

    A study refuses one that is written, differs from its default and has an effect
    at no label of the axes, so that an axis may hold those that decide on it.

    Args:
        params: whose class may have a method `idle_settings`, for its own fields.

    Examples:
        >>> class Drawn(Params):
        ...     law: str = "none"
        ...     draws: int = 1
        ...     def idle_settings(self):
        ...         if self.law == "none":
        ...             yield idle_setting(self, "draws", "law none", "law normal")
        >>> [each.message("4") for each in idle_settings(Drawn(draws=4))]
        ['draws 4 cannot be combined with law none']
    """
    if isinstance(params, TellsIdle):
        yield from params.idle_settings()
    for name in type(params).model_fields:
        value = getattr(params, name)
        if isinstance(value, Params):
            for each in idle_settings(value):
                yield replace(each, path=(name, *each.path))


def idle_setting(params: Params, name: str, cause: str, remedy: str) -> Idle:
    """Return a setting without effect.

    Args:
        params: that have it.
        name: of the field.
        cause: the settings that leave it without effect.
        remedy: those that would give it one.
    """
    value = getattr(params, name)
    is_default = bool(value == type(params).model_fields[name].default)
    return Idle((name,), value, is_default, cause, remedy)
