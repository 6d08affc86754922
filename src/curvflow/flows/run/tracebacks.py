"""Tracebacks for records and pages, without the folders of one machine and user."""

from __future__ import annotations

import getpass
import re
import sys
import sysconfig
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path

# Where an absolute path may begin: not within a path, an address or a fraction.
_BEGIN = r"(?:(?<=file://)|(?<![\w./~\\-]))"
# Between quotes, as in a line of a traceback, it may have spaces.
_QUOTED = re.compile(r"""(?<=['"])/[^/'"\n][^'"\n]*(?=['"])""")
_PLAIN = re.compile(rf"""{_BEGIN}/(?:[^\s/'"<>:,;()]+/?)+""")


def portable(text: str) -> str:
    """Return a text whose absolute paths begin at what can be imported, or are names.

    The study's folder, the package, `site-packages` and Python's own library are such
    places; the user's home is `~`. What begins like a path at no folder of this
    machine, such as a route of a server, stays.
    """
    for root in sorted(_roots(), key=len, reverse=True):
        text = re.sub(f"{_BEGIN}{re.escape(root)}", "", text)
    return _PLAIN.sub(_shortened, _QUOTED.sub(_shortened, text))


def portable_traceback(error: BaseException) -> str:
    """Return the traceback of an error as Python prints it, see `portable`."""
    return portable("".join(traceback.format_exception(error)))


def _roots() -> set[str]:
    """Return the folders that modules are imported from, each with its last slash."""
    named = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    named.append(Path(sysconfig.get_paths()["stdlib"]))
    with suppress(FileNotFoundError):  # the folder may be removed
        named.append(Path.cwd())
    # The roots of disks and of users are no such folders.
    return {f"{path}/" for path in named if len(path.parts) > 2}


def _shortened(match: re.Match[str]) -> str:
    """Return the last name of an absolute path, and `~` for a user's own folder."""
    path = Path(match[0])
    if path == _home() or path.name == _user():
        return "~"
    if len(path.parts) < 3 or not _is_here(path.parts[1]):
        return match[0]
    return path.name


@cache
def _is_here(top: str) -> bool:
    return Path("/", top).is_dir()


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # the system knows none
        return None


@cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return ""
