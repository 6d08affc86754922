"""Published files as a study asks for them: sought when planned, read where needed."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.published_images.catalogue import CATALOGUE
from curvflow.flows.published_images.find import (
    VARIABLE,
    Contents,
    Located,
    can_download,
    download,
    downloads,
    lacking,
    locate,
    places,
)
from curvflow.schemas.kinds.shared.images import ImageParams, Original
from curvflow.schemas.nodes import Array
from curvflow.schemas.study.stage import Stage


def read_verified(located: Located) -> dict[str, Array]:
    """Read the files of a data set.

    Args:
        located: where they are, and in which form.

    Returns:
        `inputs` uint8 (N, channels, height, width), `targets` int64, and both for the
        test set.

    Raises:
        InputError: a file cannot be read, or is not the one that was published.
    """
    layout = located.layout
    contents = layout.restore({part: _content(path) for part, path in located.paths})
    for part, expected in layout.md5.items():
        _check(located, part, contents, expected)
    return layout.decode(contents)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        is_packed = path.suffix == ".gz" and not path.name.endswith(".tar.gz")
        return gzip.decompress(content) if is_packed else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: expected a readable file, got none ({reason}). Fetch it anew."
        ) from error


def _check(located: Located, part: str, contents: Contents, expected: str) -> None:
    found = hashlib.md5(contents[part], usedforsecurity=False).hexdigest()
    if found == expected:
        return
    # A part that was rebuilt is told by the file of its name with another suffix.
    stem = part.partition(".")[0]
    paths = dict(located.paths)
    near = [path for path in paths.values() if path.name.startswith(stem)]
    file = paths.get(part) or near[0]
    raise InputError(
        f"{file}: expected the published content with MD5 {expected}, got MD5 {found}. "
        "Fetch the file anew."
    )


NAMES = ("inputs", "targets", "test_inputs", "test_targets")


@dataclass(frozen=True)
class Originals(Mapping[str, Array]):
    """The arrays of one published data set.

    They are `inputs` uint8 (N, channels, height, width), `targets` int64, and both for
    the test set. To another process travels only what says where to look: files are
    read and verified where an array is asked for, so it is the same everywhere.

    Attributes:
        original: what the files hold.
        study: the study's folder.
        folder: the user's, relative to it; None if none is named.
        may_download: fetch the files if they are nowhere.
    """

    original: Original
    study: Path
    folder: str | None = None
    may_download: bool = False

    def __getitem__(self, name: str) -> Array:
        return _last_read(self._there())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def seek(self, stage: Stage) -> None:
        """Make sure that the files are there; they are not read.

        Args:
            stage: for messages.

        Raises:
            StudyError: they are nowhere, and cannot be fetched or shall not be.
        """
        if self._located() is not None:
            return
        if not self.may_download:
            path = () if self.folder is None else ("folder",)
            raise stage.complain(path, self._missing(), self._remedy())
        if not can_download():
            raise stage.complain(
                ("download",),
                "expected the package pooch, which fetches files, got none",
                "Install curvflow[datasets].",
            )

    def _there(self) -> Located:
        located = self._located()
        if located is None and self.may_download:
            name = self.original.name
            download(CATALOGUE[name], downloads(name, self.folder, self.study))
            located = self._located()
        if located is None:
            raise InputError(f"{self._missing()}. {self._remedy()}")
        return located

    def _located(self) -> Located | None:
        name = self.original.name
        catalogued = CATALOGUE[name]
        for place in places(name, catalogued, self.folder, self.study):
            found = locate(catalogued, place.path) if place.path else None
            if found:
                return found
        return None

    def _missing(self) -> str:
        name = self.original.name
        catalogued, looked = CATALOGUE[name], []
        for place in places(name, catalogued, self.folder, self.study):
            lacks = lacking(catalogued, place.path) if place.path else None
            looked.append(f"{place.label} (no {lacks})" if lacks else place.label)
        title = self.original.title
        return f"expected the files of {title}, got none in {', '.join(looked)}"

    def _remedy(self) -> str:
        remedy = self.original.remedy
        ways = [
            *([f"get them by `{remedy}`"] if remedy else []),
            f"name their folder by folder: or {VARIABLE}",
            "say download: true",
        ]
        text = ", or ".join([", ".join(ways[:-1]), ways[-1]])
        return f"{text[0].upper()}{text[1:]}."


def originals(params: ImageParams, study: Path) -> Originals:
    """Return the published files that parameters ask for.

    Args:
        params: validated parameters.
        study: the study's folder.

    Returns:
        The arrays of the files, not yet read.
    """
    return Originals(params.original, study, params.folder, params.download)


# Seeds and modifications of one data set are computed in a row.
_last_read = lru_cache(maxsize=1)(read_verified)
