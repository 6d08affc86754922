"""Places that count as a user's, and the names that files have in a store.

No name in a store holds the folder of one machine or the name of its user: names are
relative to the study's folder, or begin at the home folder.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import time
from functools import cache
from hashlib import file_digest, sha256
from importlib.util import source_from_cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Literal, NamedTuple

PACKAGE = str(Path(__file__).parents[2])
# The machine's own; what they hold is no data of a study.
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/share", "/usr/lib", "/lib")
IN_MEMORY = "/dev/shm/"  # where users do keep data
# Compiled by PyTorch on the way, from code that counts by itself.
COMPILED = ("/torchinductor_", "/.triton/")
USER = "$USER"

# Size, time of the content, time of the entry, inode.
Stat = tuple[int, int, int, int]
Origin = Literal["python", "curvflow", "user"]


class Sight(NamedTuple):
    """A file, folder or variable as it was when it was looked at.

    Attributes:
        stat: of a file or folder; None if there was none, and for a variable.
        digest: of the names in a folder, of a variable's value, or of a file's content,
            None as long as that was not read.
    """

    stat: Stat | None = None
    digest: str | None = None


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [*site.getsitepackages(), site.getusersitepackages()]
    named += [
        os.path.join(prefix, inner)
        for prefix in {sys.prefix, sys.base_prefix}
        for inner in ("lib", "lib64", "bin", "etc", "share")
        if len(Path(prefix).parts) > 2  # not /usr, where anything may be
    ]
    links = [os.path.realpath(name) for name in named]
    return tuple({f"{name.rstrip('/')}/" for name in (*named, *links)})


_SKIPPED = tuple(f"{name}/" for name in SYSTEM)


@cache
def origin(file: str) -> Origin:
    """Return whose a source file is, by the name that its code objects bear."""
    if file.startswith(("<frozen ", "<__array_function__")):
        return "python"
    if file.startswith(f"{PACKAGE}/"):
        return "curvflow"
    return "python" if file.startswith(_installed()) else "user"


def is_skipped(path: str) -> bool:
    """Return whether a path is Python's, this package's, or the system's."""
    if path.startswith((*_SKIPPED, *_installed(), f"{PACKAGE}/")):
        return not path.startswith(IN_MEMORY)
    return any(part in path for part in COMPILED)


def source_of(path: str) -> str:
    """Return the source file of compiled code; any other path as it is."""
    if path.endswith(".pyc"):
        try:
            return source_from_cache(path)
        except ValueError:  # it stands alone
            return path
    return path


def stat_of(path: str) -> Stat | None:
    """Return the stat of a file or folder; None if there is none, or it is a device."""
    try:
        seen = os.stat(path)
    except (OSError, ValueError):
        return None
    if not (S_ISREG(seen.st_mode) or S_ISDIR(seen.st_mode)):
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def names_digest(folder: str) -> str:
    """Return the digest of the names in a folder; hidden ones do not count."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    kept = [n for n in names if not n.startswith((".", "__pycache__"))]
    return sha256("\0".join(kept).encode(errors="surrogateescape")).hexdigest()


def value_digest(name: str, value: str | None) -> str:
    """Return the digest of a variable's value, which differs by its name."""
    text = f"{name}\0{'' if value is None else f'={value}'}"
    return sha256(text.encode(errors="surrogateescape")).hexdigest()


_contents: dict[tuple[str, Stat], str] = {}

# Two changes within a tick of a file system's clock have one time; it has ten a second
# at the very least.
TICK = 100_000_000


def content_digest(path: str, stat: Stat) -> str | None:
    """Return the SHA-256 of a file that still has a stat; None if it has another.

    A file is read once per process for each of its stats.
    """
    known = _contents.get((path, stat))
    if known is None and stat_of(path) == stat:
        try:
            with open(path, "rb") as file:
                known = file_digest(file, "sha256").hexdigest()
        except OSError:
            return None
        if stat_of(path) != stat:
            return None
        if is_settled(stat):
            _contents[path, stat] = known
    return known


def is_settled(stat: Stat) -> bool:
    """Return whether a change from now on would have another time than the last one."""
    return time.time_ns() - max(stat[1], stat[2]) > TICK


def portable_name(path: str, folder: str) -> str:
    """Return the name of an absolute path in the store of a study.

    Relative to the study's folder; but from the home folder on, as `~/...`, where the
    way from one to the other would name it.
    """
    home = str(Path.home())
    name = os.path.relpath(path, folder)
    if _is_in(path, home) and not _is_in(os.path.commonpath([path, folder]), home):
        name = f"~/{os.path.relpath(path, home)}"
    user = os.path.basename(home)
    parts = [USER if part == user else part for part in name.split("/")]
    return "/".join(parts) + ("/" if path.endswith("/") else "")


def path_of(name: str, folder: str) -> str:
    """Return the absolute path that a name in a store stands for."""
    home = Path.home()
    parts = [home.name if part == USER else part for part in name.split("/")]
    if parts[0] == "~":
        parts[0] = str(home)
    path = os.path.normpath(os.path.join(folder, *parts))
    return f"{path}/" if name.endswith("/") else path


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
