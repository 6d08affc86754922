"""Files of published graphs: located when planned, read where a node needs them."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.published.find import (
    VARIABLE,
    SearchFolder,
    package_folder,
    search_folders,
)
from curvflow.schemas.nodes import Array
from curvflow.schemas.published_graphs import (
    PUBLISHED,
    Published,
    PublishedName,
)
from curvflow.schemas.study.stage import Stage


@dataclass(frozen=True)
class PublishedGraph(Mapping[str, Array]):
    """The `bytes` of a published graph's file.

    Only these attributes travel to another process: it finds, reads and verifies the
    file itself when the bytes are taken.

    Attributes:
        name: of the graph.
        study: the study's folder.
        folder: the user's, relative to it; None if not set.
    """

    name: PublishedName
    study: Path
    folder: str | None = None

    def __getitem__(self, name: str) -> Array:
        if name != "bytes":
            raise KeyError(name)
        place = self._located()
        if place is None:
            raise InputError(f"{self._missing()}. {self._remedy()}")
        content = _content(place, self._graph)
        digest = hashlib.sha256(content).hexdigest()
        if digest != self._graph.sha256:
            raise InputError(
                f"{place}: expected the published content with SHA-256 "
                f"{self._graph.sha256}, got {digest}. Download it again."
            )
        return np.frombuffer(content, np.uint8)

    def __iter__(self) -> Iterator[str]:
        return iter(("bytes",))

    def __len__(self) -> int:
        return 1

    def seek(self, stage: Stage) -> None:
        """Require that the file exists; it is not read.

        Args:
            stage: for messages.

        Raises:
            StudyError: it is not found.
        """
        if self._located() is None:
            path = "name" if self.folder is None else "folder"
            raise stage.error((path,), self._missing(), self._remedy())

    @property
    def _graph(self) -> Published:
        return PUBLISHED[self.name]

    def _folders(self) -> list[SearchFolder]:
        folders = search_folders("graphs", self.folder, self.study)
        module = self._graph.module
        return [*folders, package_folder(module)] if module else folders

    def _located(self) -> Path | None:
        """Return the file, or the archive that holds it."""
        graph = self._graph
        archive = f"{'-'.join(graph.package)}.tar.gz"
        names = (PurePosixPath(graph.file).name, graph.file)
        inner = ("", "graphs", archive.removesuffix(".tar.gz"))
        for folder in self._folders():
            for part in inner if folder.path else ():
                for name in (*names, archive):
                    path = Path(folder.path or "") / part / name
                    if path.is_file():
                        return path
        return None

    def _missing(self) -> str:
        file = PurePosixPath(self._graph.file).name
        labels = ", ".join(folder.label for folder in self._folders())
        return (
            f"expected the file of {self._graph.title} ({file}), got none in {labels}"
        )

    def _remedy(self) -> str:
        return f"{self._graph.remedy} by folder: or {VARIABLE}."


def _content(path: Path, graph: Published) -> bytes:
    """Return the bytes of a file, as they are or within an archive of sources.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return (
            _unpacked(path, graph)
            if path.name.endswith(".tar.gz")
            else path.read_bytes()
        )
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: expected a readable file, got none ({reason}). Download it again."
        ) from error


def _unpacked(path: Path, graph: Published) -> bytes:
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.name.partition("/")[2] == graph.file:
                file = archive.extractfile(entry)
                return file.read() if file else b""
    return b""
