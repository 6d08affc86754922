"""Tracebacks for records and pages, without the folders of one machine and user."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from pathlib import Path

# The folders in an absolute path, and the same in a line of a traceback, where a name
# may have spaces. An address such as s3://bucket/a and a fraction are no paths.
FOLDERS = re.compile(r"(?<![\w.~:/\\])/(?:[^\s/'\"<>:]+/)+")
FRAME = re.compile(r'(?<=File ")/(?:[^"/\n]+/)+')


def portable(text: str) -> str:
    """Return a text whose absolute paths begin at what can be imported, or are names.

    The study's folder, the package, `site-packages` and Python's own library are such
    places.
    """
    for root in sorted(_roots(), key=len, reverse=True):
        text = text.replace(root, "")
    return FOLDERS.sub("", FRAME.sub("", text))


def portable_traceback(error: BaseException) -> str:
    """Return the traceback of an error as Python prints it, see `portable`."""
    return portable("".join(traceback.format_exception(error)))


def _roots() -> set[str]:
    """Return the folders that modules are imported from, each with its last slash."""
    named = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    named += [Path.cwd(), Path(sysconfig.get_paths()["stdlib"])]
    # The roots of disks and of users are no such folders.
    return {f"{path}/" for path in named if len(path.parts) > 2}
