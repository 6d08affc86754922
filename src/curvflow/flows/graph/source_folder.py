"""Folders of files that parameters name, which count by names and contents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.reads.places import file_content_digest
from curvflow.schemas.keys import sha256
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import SourceFolder

CHANGED = (
    "expected the {} that was planned with, got one that has changed since. Run again."
)


def vanished(what: str, error: OSError) -> str:
    """Return the message on a file or folder that was there while planning."""
    return (
        f"expected the {what} that was planned with, got none ({error.strerror}). "
        "Bring it back, or run again."
    )


@dataclass(frozen=True)
class FolderFiles(Mapping[str, Array]):
    """The files of a folder by their paths in it, as bytes.

    Only these attributes travel to another process, which reads a file where it takes
    it and compares its digest.

    Attributes:
        field: parameter that names the folder, for messages.
        folder: its path.
        digests: SHA-256 of each file.
    """

    field: str
    folder: Path
    digests: Mapping[str, str]

    def __getitem__(self, name: str) -> Array:
        expected = self.digests[name]
        try:
            content = (self.folder / name).read_bytes()
        except OSError as error:
            message = vanished(f"file {name}", error)
            raise InputError(f"{self.field}: {message}") from error
        if hashlib.sha256(content).hexdigest() != expected:
            raise InputError(f"{self.field}: {CHANGED.format(name)}")
        return np.frombuffer(content, dtype=np.uint8)

    def __iter__(self) -> Iterator[str]:
        return iter(self.digests)

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def digest(self) -> str:
        """SHA-256 of the names and contents of all files."""
        return sha256([[name, digest] for name, digest in self.digests.items()])


def files_in(field: str, folder: Path, mark: SourceFolder) -> FolderFiles:
    """List the files of a folder that a parameter requests, with their digests.

    Raises:
        OSError: the folder or a file in it cannot be read.
    """
    names = sorted(_names(folder, mark))
    digests = {name: file_content_digest(folder / name) for name in names}
    return FolderFiles(field, folder, digests)


def _unreadable(error: OSError) -> None:
    raise error


def _names(folder: Path, mark: SourceFolder) -> Iterator[str]:
    with os.scandir(folder):  # `os.walk` takes what is no folder for an empty one
        pass
    for place, folders, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        inner = Path(place).relative_to(folder)
        # A link may lead back to a folder above it.
        is_deep = len(inner.parts) >= mark.depth
        skipped = () if mark.hidden else (".",)
        folders[:] = [f for f in folders if not (is_deep or f.startswith(skipped))]
        for name in files:
            if name.lower().endswith(mark.suffixes) and not name.startswith(skipped):
                yield (inner / name).as_posix()
