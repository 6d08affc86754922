"""Where the files of a published data set lie, in which form, and how to fetch them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from curvflow.errors import InputError
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


VARIABLE = "CURVFLOW_DATA"


@dataclass(frozen=True)
class Place:
    """A folder in which files may lie.

    Attributes:
        label: how messages name it, with the reason if it is not there.
        path: the folder, or None if it is not there.
    """

    label: str
    path: Path | None


@dataclass(frozen=True)
class Located:
    """Files that are there, their contents unknown.

    Attributes:
        layout: the form that they have.
        paths: of the parts of the layout that are there.
    """

    layout: Layout
    paths: tuple[tuple[str, Path], ...]


def places(
    name: str, catalogued: Catalogued, folder: str | None, study: Path
) -> list[Place]:
    """List where files may lie, in the order in which it is looked.

    Args:
        name: of the data set.
        catalogued: its entry.
        folder: the user's, relative to the study's; None if none is named.
        study: the study's folder.

    Returns:
        The places.
    """
    found = []
    if folder is not None:
        found.append(Place(folder, study / Path(folder).expanduser()))
    if asked := os.environ.get(VARIABLE):
        found.append(Place(f"{VARIABLE} ({asked})", Path(asked).expanduser()))
    else:
        found.append(Place(f"{VARIABLE} (not set)", None))
    found += [_package(*entry) for entry in catalogued.packages.items()]
    found += [Place(one, Path(one)) for one in catalogued.folders]
    found.append(Place("node_modules", study / "node_modules"))
    cache = _cache(name)
    found.append(Place(str(cache), cache))
    return found


def downloads(name: str, folder: str | None, study: Path) -> Path:
    """Return where a download goes; `places` holds it.

    Args:
        name: of the data set.
        folder: the user's, relative to the study's; None if none is named.
        study: the study's folder.

    Returns:
        The folder, which need not exist.
    """
    if folder is not None:
        return study / Path(folder).expanduser()
    if asked := os.environ.get(VARIABLE):
        return Path(asked).expanduser() / name
    return _cache(name)


def _package(name: str, inner: str) -> Place:
    spec = find_spec(name)  # of a package at the top nothing is imported
    if spec is None or not spec.submodule_search_locations:
        return Place(f"package {name} (not installed)", None)
    return Place(f"package {name}", Path(spec.submodule_search_locations[0]) / inner)


def _cache(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "curvflow" / name


def locate(catalogued: Catalogued, place: Path) -> Located | None:
    """Find the files of any one layout within a place.

    Args:
        catalogued: the data set's entry.
        place: a folder, which need not exist.

    Returns:
        The files, or None if no layout is whole.
    """
    for found in _found(catalogued, place):
        if len(found.paths) == len(found.layout.files):
            return found
    return None


def lacking(catalogued: Catalogued, place: Path) -> str | None:
    """Name a file that is not there beside others of its layout, if there is one."""
    found = max(_found(catalogued, place), key=lambda one: len(one.paths), default=None)
    if found is None or not found.paths:
        return None
    parts = (part for part in found.layout.files if part not in dict(found.paths))
    return next((found.layout.names(part)[0] for part in parts), None)


def _found(catalogued: Catalogued, place: Path) -> Iterator[Located]:
    """Yield per layout what is there of it."""
    folders = [place / inner for inner in catalogued.subfolders]
    folders = [folder for folder in folders if folder.is_dir()]
    for layout in catalogued.layouts if folders else ():
        paths = {part: _first(folders, layout.names(part)) for part in layout.files}
        there = [(part, path) for part, path in paths.items() if path is not None]
        yield Located(layout, tuple(there))


def _first(folders: list[Path], names: tuple[str, ...]) -> Path | None:
    return next(_files(folders, names), None)


def _files(folders: list[Path], names: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                yield folder / name


def can_download() -> bool:
    """Return whether pooch is there, without importing it."""
    return find_spec("pooch") is not None


def download(catalogued: Catalogued, folder: Path) -> None:
    """Fetch what is not there yet, verified by its published checksum.

    Args:
        catalogued: the data set's entry.
        folder: where the files are put; made if need be.

    Raises:
        InputError: a file cannot be fetched, or is not the one that was published.
    """
    import pooch  # an extra, wanted by those alone who ask for a download

    pooch.get_logger().setLevel(logging.WARNING)
    for name, file in catalogued.fetched.items():
        try:
            pooch.retrieve(file.url, f"md5:{file.md5}", fname=name, path=folder)
        # Whatever the network and its libraries raise, the answer is the same.
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"download: expected {name} from {file.url}, got none ({reason}). "
                "Try again, or put the file into a folder named by folder:."
            ) from error
