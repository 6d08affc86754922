"""Fetch the files of a published data set, where the user asks for it."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.originals.layouts import Catalogued


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
