"""Parameters of a stage: frozen, unknown fields and NaN refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, eq=False)  # typing would take 1 for 1.0 of an equal mark
class Neutral:
    """Mark of a field added after a kind's first release.

    A parameter equal to `value`, the value that reproduces the old behaviour, is left
    out of the canonical form, so that results made before the field existed stay valid.
    It is frozen, apart from the default: a changed default does change keys.
    """

    value: Any


@dataclass(frozen=True)
class SourceFile:
    """Mark of a path field whose file's content, not its name, enters the key.

    Attributes:
        raw: the file arrives as its `bytes`, whatever its form.
        rows_above: the field with the bytes of a `.npy` file, of an array of a zarr
            folder or netCDF file, or of any raw file, above which an array stays on
            disk; empty if it is always read.
    """

    raw: bool = False
    rows_above: str = ""


@dataclass(frozen=True)
class SourceFolder(SourceFile):
    """Mark of a path field whose folder's files enter the key, names and contents.

    They arrive as bytes, by their paths in the folder, each read when it is taken.

    Attributes:
        suffixes: ends of the names of these files, in small letters.
        depth: levels of folders that are looked into.
        hidden: names that begin with a dot are looked at, too.
    """

    suffixes: tuple[str, ...] = ()
    depth: int = 1
    hidden: bool = False


@dataclass(frozen=True)
class NotInKey:
    """Mark of a field that enters no key: a place to look for content with a checksum.

    The checksum fixes the content, wherever it is.
    """


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


class Params(BaseModel):
    """Base of every parameter model; its fields are the identity of a node.

    Run knobs (device, workers, store, log level) live in `RunOptions` and so cannot
    enter a key by accident.

    Attributes:
        names_code_in: the field that names a function or class, `module:name`, of the
            user's own; empty if none does.

    Examples:
        >>> import curvflow
        >>> class Radius(curvflow.Params):
        ...     scale: float = 1.0
        >>> Radius(scale=2.0)
        Radius(scale=2.0)
    """

    names_code_in: ClassVar[str] = ""

    # Validators are built on first use: a study names few of all kinds.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        strict=True,
        defer_build=True,
    )

    def idle_settings(self) -> Iterator[Idle]:
        """Yield settings that others leave without effect, whatever their values.

        A study refuses one that is written, differs from its default and has an effect
        at no label of the axes, so that an axis may hold those that decide on it.

        Examples:
            >>> import curvflow
            >>> class Drawn(curvflow.Params):
            ...     law: str = "none"
            ...     draws: int = 1
            ...     def idle_settings(self):
            ...         if self.law == "none":
            ...             yield self.idle_setting("draws", "law none", "law normal")
            >>> [each.message("4") for each in Drawn(draws=4).idle_settings()]
            ['draws 4 cannot be combined with law none']
        """
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Params):
                for each in value.idle_settings():
                    yield replace(each, path=(name, *each.path))

    def idle_setting(self, name: str, cause: str, remedy: str) -> Idle:
        """Return a setting without effect, for `idle_settings`.

        Args:
            name: of the field.
            cause: the settings that leave it without effect.
            remedy: those that would give it one.

        Returns:
            The setting.

        Examples:
            >>> import curvflow
            >>> class Drawn(curvflow.Params):
            ...     draws: int = 1
            >>> Drawn(draws=4).idle_setting("draws", "law none", "law normal").hint
            'Remove draws, or take law normal.'
        """
        value = getattr(self, name)
        is_default = bool(value == type(self).model_fields[name].default)
        return Idle((name,), value, is_default, cause, remedy)


# YAML writes sequences as lists; a frozen model holds them as tuples.
Ints = Annotated[tuple[int, ...], Field(strict=False)]
Floats = Annotated[tuple[float, ...], Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
