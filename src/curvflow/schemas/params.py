"""Parameters of a stage: frozen, unknown fields and NaN refused."""

from __future__ import annotations

from dataclasses import dataclass
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


# YAML writes sequences as lists; a frozen model holds them as tuples.
Ints = Annotated[tuple[int, ...], Field(strict=False)]
Floats = Annotated[tuple[float, ...], Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
