"""Read files that were found, and hold them to their published checksums."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.originals.find import Located
from curvflow.flows.originals.layouts import Contents
from curvflow.schemas.nodes import Array


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
