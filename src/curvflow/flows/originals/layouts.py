"""The forms in which published files lie about, and how each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from curvflow.schemas.nodes import Array

Contents = Mapping[str, bytes]


def _as_they_are(contents: Contents) -> Contents:
    return contents


@dataclass(frozen=True, eq=False)
class Layout:
    """One form of a data set.

    Attributes:
        files: the names that each file goes by, per part; `.gz` of a part's name is
            accepted as well where `zipped`.
        md5: published MD5 per part, of the content that `restore` returns.
        decode: from verified contents to the four arrays of a data set.
        restore: from the files to the contents as published, where they were recoded.
        zipped: files may be compressed; the checksums are those of their contents.
    """

    files: Mapping[str, tuple[str, ...]]
    md5: Mapping[str, str]
    decode: Callable[[Contents], dict[str, Array]]
    restore: Callable[[Contents], Contents] = _as_they_are
    zipped: bool = False

    def names(self, part: str) -> tuple[str, ...]:
        """Return the names that the file of a part goes by."""
        names = self.files[part]
        return (*names, *(f"{name}.gz" for name in names)) if self.zipped else names


@dataclass(frozen=True)
class Fetched:
    """A file on the network.

    Attributes:
        url: where it is.
        md5: of the file itself.
    """

    url: str
    md5: str


@dataclass(frozen=True)
class Catalogued:
    """Where and how one data set is found.

    Attributes:
        layouts: in the order of preference.
        subfolders: looked into below each place.
        packages: installed Python packages with the files, and the folder within.
        folders: where a distribution puts the files.
        fetched: by file name what a download fetches.
    """

    layouts: tuple[Layout, ...]
    subfolders: tuple[str, ...]
    packages: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    fetched: Mapping[str, Fetched] = field(default_factory=dict)
