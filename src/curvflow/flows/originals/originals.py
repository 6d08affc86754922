"""Originals: from a kind's parameters to the verified arrays of its files."""

from __future__ import annotations

from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.originals.catalogue import CATALOGUE
from curvflow.flows.originals.download import can_download, download
from curvflow.flows.originals.find import (
    VARIABLE,
    Located,
    Place,
    downloads,
    lacking,
    locate,
    places,
)
from curvflow.flows.originals.verify import read_verified
from curvflow.schemas.images import ImageParams
from curvflow.schemas.nodes import Array
from curvflow.schemas.stage import Stage


class Originals:
    """The files of published data sets, as one study finds them."""

    def __init__(self, folder: Path) -> None:
        """Remember where relative folders start.

        Args:
            folder: the study's folder.
        """
        self._folder = folder
        self._sought: set[tuple[str, str | None, bool]] = set()
        self._last: tuple[dict[str, Path], dict[str, Array]] | None = None

    def seek(self, stage: Stage, params: ImageParams) -> None:
        """Make sure that the files are there; they are not read.

        Args:
            stage: for messages.
            params: its validated parameters.

        Raises:
            StudyError: they are nowhere, and cannot be fetched or shall not be.
        """
        asked = (params.original.name, params.folder, params.download)
        if asked in self._sought:
            return
        if self._located(params) is None:
            self._refuse(stage, params)
        self._sought.add(asked)

    def _refuse(self, stage: Stage, params: ImageParams) -> None:
        if not params.download:
            path = () if params.folder is None else ("folder",)
            raise stage.complain(path, self._missing(params), _remedy(params))
        if not can_download():
            raise stage.complain(
                ("download",),
                "expected the package pooch, which fetches files, got none",
                "Install curvflow[datasets].",
            )

    def read(self, params: ImageParams) -> dict[str, Array]:
        """Read and verify the files; several nodes in a row share one reading.

        Args:
            params: validated parameters.

        Returns:
            `inputs` uint8 (N, channels, height, width), `targets` int64, and both for
            the test set.

        Raises:
            InputError: a file is missing, cannot be fetched, or is not the one that
                was published.
        """
        located = self._located(params)
        if located is None and params.download:
            name = params.original.name
            download(CATALOGUE[name], downloads(name, params.folder, self._folder))
            located = self._located(params)
        if located is None:
            raise InputError(f"{self._missing(params)}. {_remedy(params)}")
        paths = dict(located.paths)
        if self._last is None or self._last[0] != paths:
            self._last = None  # before others are read, not beside them
            self._last = paths, read_verified(located)
        return self._last[1]

    def _places(self, params: ImageParams) -> list[Place]:
        name = params.original.name
        return places(name, CATALOGUE[name], params.folder, self._folder)

    def _located(self, params: ImageParams) -> Located | None:
        catalogued = CATALOGUE[params.original.name]
        for place in self._places(params):
            found = locate(catalogued, place.path) if place.path else None
            if found:
                return found
        return None

    def _missing(self, params: ImageParams) -> str:
        catalogued = CATALOGUE[params.original.name]
        looked = []
        for place in self._places(params):
            lacks = lacking(catalogued, place.path) if place.path else None
            looked.append(f"{place.label} (no {lacks})" if lacks else place.label)
        title = params.original.title
        return f"expected the files of {title}, got none in {', '.join(looked)}"


def _remedy(params: ImageParams) -> str:
    remedy = params.original.remedy
    ways = [
        *([f"get them by `{remedy}`"] if remedy else []),
        f"name their folder by folder: or {VARIABLE}",
        "say download: true",
    ]
    text = ", or ".join([", ".join(ways[:-1]), ways[-1]])
    return f"{text[0].upper()}{text[1:]}."
