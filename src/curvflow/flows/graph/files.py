"""Files that parameters name: located, hashed, read and checked."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.published_images.arrays import published_arrays
from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Params, SourceFile
from curvflow.schemas.study.study import Stage


class SourceFiles:
    """The files that a study names, relative to the study's folder.

    A file counts by its content: moving or renaming it changes no key. Published files
    enter no key: their checksums are known.

    Attributes:
        folder: the study's, where relative paths start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sought: set[Mapping[str, Array]] = set()

    def seek(self, stage: Stage, params: Params) -> None:
        """Check that published files are there, unread; StudyError if not."""
        if isinstance(params, ImageParams):
            wanted = published_arrays(params, self.folder)
            if wanted not in self._sought:
                wanted.seek(stage)
                self._sought.add(wanted)

    def digests(self, stage: Stage, params: Params) -> dict[str, str]:
        """Return the SHA-256 of each file that parameters name, by field."""
        return {
            name: self._digest(stage, name, path)
            for name, path in self._paths(params).items()
        }

    def read(
        self, params: Params, form: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Array]]:
        """Read the arrays of all files that parameters name, by field and name.

        An .npy holds `array`, an .mtx `bytes`; published files are under `originals`,
        read only when used.

        Raises:
            InputError: a file has changed or vanished since it was planned with, is
                neither .npy, .npz nor .mtx, or holds Python objects.
        """
        if isinstance(params, ImageParams):
            return {"originals": published_arrays(params, self.folder)}
        return {
            name: _arrays(name, path, form[name]["sha256"])
            for name, path in self._paths(params).items()
        }

    def _paths(self, params: Params) -> dict[str, Path]:
        return {
            name: self.folder / Path(getattr(params, name)).expanduser()
            for name in _file_fields(type(params))
            if getattr(params, name) is not None
        }

    def _digest(self, stage: Stage, name: str, path: Path) -> str:
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = f"expected a readable file, got {path} ({error.strerror})"
            hint = "Paths are relative to the study file's folder."
            raise stage.error((name,), reason, hint) from error


@cache
def _file_fields(params: type[Params]) -> tuple[str, ...]:
    return tuple(
        name
        for name, info in params.model_fields.items()
        if any(isinstance(mark, SourceFile) for mark in info.metadata)
    )


def _arrays(name: str, path: Path, digest: str) -> dict[str, Array]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{name}: expected the file {path.name} that was planned with, got none "
            f"({error.strerror})"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(
            f"{name}: expected the {path.name} that was planned with, got one that "
            "has changed since. Run again"
        )
    if path.suffix == ".mtx":  # text, which the task reads
        return {"bytes": np.frombuffer(content, dtype=np.uint8)}
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        # An archive finds objects only when it is unpacked.
        return {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{name}: expected a .npy or .npz file of numbers, got {path.name}, which "
            "is none"
        ) from error
