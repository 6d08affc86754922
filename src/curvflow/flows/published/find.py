"""Search for the files of a published data set, and their download."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.published.decoders import Contents
from curvflow.schemas.nodes import Array
from curvflow.schemas.words import one_line

Decoder = Callable[[Contents], dict[str, Array]]


@dataclass(frozen=True, eq=False)
class Layout:
    """One form of a data set.

    Attributes:
        files: the names that each file goes by, per part; `.gz` of a part's name is
            accepted as well where `zipped`.
        md5: published MD5 per part; none of a part that there are several forms of.
        decode: from verified contents to the four arrays of a data set.
        zipped: files may be compressed; the checksums are those of their contents.
        pixels: MD5 of the decoded images, where those of the files do not suffice.
    """

    files: Mapping[str, tuple[str, ...]]
    md5: Mapping[str, str]
    decode: Decoder
    zipped: bool = False
    pixels: str | None = None

    def names(self, part: str) -> tuple[str, ...]:
        """Return the names that the file of a part goes by."""
        names = self.files[part]
        return (*names, *(f"{name}.gz" for name in names)) if self.zipped else names


@dataclass(frozen=True)
class Download:
    """A file on the network, with the MD5 of the file itself."""

    url: str
    md5: str


@dataclass(frozen=True)
class DataSet:
    """Published files of one data set.

    Attributes:
        layouts: in the order of preference.
        subfolders: searched within each folder.
        contents: the files, for people.
        downloads: by file name; none where a package holds the files.
        package: that holds them, and its version; none where they are downloaded.
    """

    layouts: tuple[Layout, ...]
    subfolders: tuple[str, ...]
    contents: str
    downloads: Mapping[str, Download]
    package: tuple[str, str] | None = None


VARIABLE = "CURVFLOW_DATA"


@dataclass(frozen=True)
class SearchFolder:
    """A folder in which files may lie.

    Attributes:
        label: its name in messages.
        path: the folder, or None if the user has not set it.
    """

    label: str
    path: Path | None


@dataclass(frozen=True)
class LocatedFiles:
    """Paths of the parts of a layout that exist, their contents unknown."""

    layout: Layout
    paths: tuple[tuple[str, Path], ...]


def search_folders(name: str, folder: str | None, study: Path) -> list[SearchFolder]:
    """List the folders to search, in order.

    Args:
        name: of the data set.
        folder: the user's, relative to the study's; None if not set.
        study: the study's folder.

    Returns:
        The user's folder, that of the environment variable, and the cache.
    """
    folders = []
    if folder is not None:
        folders.append(SearchFolder(folder, study / Path(folder).expanduser()))
    if variable := os.environ.get(VARIABLE):
        path = Path(variable).expanduser()
        folders.append(SearchFolder(f"{VARIABLE} ({variable})", path))
    else:
        folders.append(SearchFolder(f"{VARIABLE} (not set)", None))
    cache = _cache(name)
    folders.append(SearchFolder(str(cache), cache))
    return folders


def download_folder(name: str, folder: str | None, study: Path) -> Path:
    """Return the folder a download goes to, within the first of `search_folders`."""
    if folder is not None:
        return study / Path(folder).expanduser()
    if variable := os.environ.get(VARIABLE):
        return Path(variable).expanduser() / name
    return _cache(name)


def _cache(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "curvflow" / name


def package_folder(name: str) -> SearchFolder:
    """Return the folder of an installed package, of which nothing is imported."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return SearchFolder(f"the package {name} (not installed)", None)
    return SearchFolder(
        f"the package {name}", Path(next(iter(spec.submodule_search_locations)))
    )


def locate(data_set: DataSet, folder: Path) -> LocatedFiles | None:
    """Return the files of the first layout that a folder holds whole, or None."""
    for files in _located(data_set, folder):
        if len(files.paths) == len(files.layout.files):
            return files
    return None


def missing_file(data_set: DataSet, folder: Path) -> str | None:
    """Name a file that is absent where others of its layout are there."""
    located = _located(data_set, folder)
    best = max(located, key=lambda files: len(files.paths), default=None)
    if best is None or not best.paths:
        return None
    parts = (part for part in best.layout.files if part not in dict(best.paths))
    return next((best.layout.names(part)[0] for part in parts), None)


def _located(data_set: DataSet, folder: Path) -> Iterator[LocatedFiles]:
    """Yield the files of each layout that exist."""
    folders = [folder / inner for inner in data_set.subfolders]
    folders = [folder for folder in folders if folder.is_dir()]
    for layout in data_set.layouts if folders else ():
        paths = {part: _first(folders, layout.names(part)) for part in layout.files}
        there = [(part, path) for part, path in paths.items() if path is not None]
        yield LocatedFiles(layout, tuple(there))


def _first(folders: list[Path], names: tuple[str, ...]) -> Path | None:
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def can_download() -> bool:
    """Return whether pooch is installed, without importing it."""
    return find_spec("pooch") is not None


def download(data_set: DataSet, folder: Path) -> None:
    """Fetch the files that a folder lacks, verified by their published checksums."""
    import pooch  # an extra, needed for downloads alone

    pooch.get_logger().setLevel(logging.WARNING)
    for name, file in data_set.downloads.items():
        try:
            pooch.retrieve(file.url, f"md5:{file.md5}", fname=name, path=folder)
        # Whatever the network and its libraries raise, the answer is the same.
        except Exception as error:
            reason = one_line(error)
            raise InputError(
                f"download: expected {name} from {file.url}, got none ({reason}). "
                "Try again, or put the file into a folder named by folder:."
            ) from error
