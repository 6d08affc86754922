"""Places that count as a user's, and the names that files have in a store.

No name in a store holds the folder of one machine or the name of its user: names are
relative to the study's folder, or begin at the home folder.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
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
USER = "$USER"
# The folder of tables and figures, and the file that lists them.
RESULTS, MANIFEST = "results", ".written.json"

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


def _is_shared(prefix: Path) -> bool:
    """Return whether Python is installed where anything else may be.

    As in /usr, or in the folder of a project.
    """
    if len(prefix.parts) <= 2:
        return True
    return any(next(prefix.glob(f"*.{end}"), None) for end in ("py", "yaml", "toml"))


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [*site.getsitepackages(), site.getusersitepackages()]
    named += [
        os.path.join(prefix, inner)
        for prefix in {sys.prefix, sys.base_prefix}
        for inner in ("lib", "lib64", "bin", "etc", "share")
        if not _is_shared(Path(prefix))
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


def is_users(module: str) -> bool:
    """Return whether a module is loaded, from a file of a user's."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and origin(file) == "user"


def is_script() -> bool:
    """Return whether this process was begun by a user's script, prompt or notebook."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None:  # a prompt's has none either, that of a worker begins its process
        return not hasattr(main, "spawn_main")
    return origin(os.path.abspath(file)) == "user"


def is_skipped(path: str) -> bool:
    """Return whether a path is Python's, this package's, or the system's."""
    if path.startswith((*_SKIPPED, *_installed(), f"{PACKAGE}/")):
        return not path.startswith(IN_MEMORY)
    return path.startswith(_compiled())


# Folders of what PyTorch compiles on the way, from code that counts by itself.
@cache
def _compiled() -> tuple[str, ...]:
    temporary = temporary_folder()
    return f"{temporary}/torchinductor_", f"{_home() or temporary}/.triton/"


@cache
def _searched() -> str:
    with suppress(OSError):
        return tempfile.gettempdir()
    return ""


def temporary_folder() -> str:
    """Return the folder of temporary files; "" if none can be written.

    Without one each search begins anew, under a lock: here there is one search only.
    """
    return os.fsdecode(tempfile.tempdir or _searched())


def is_temporary(path: str) -> bool:
    """Return whether a path is in a folder of temporary files, and in no project."""
    temporary = temporary_folder()
    inside = (f"{temporary}/", IN_MEMORY) if temporary else IN_MEMORY
    if not path.startswith(inside):
        return False
    return not any(_is_in(path, entry) for entry in sys.path if entry)


def physical(path: str) -> str:
    """Return an absolute path whose `..` mean what they do where links are followed."""
    name = os.path.abspath(path)
    if ".." not in path.split("/"):
        return name
    before, _, after = path.rpartition("../")
    if not after or after == path:
        return os.path.realpath(path)
    real = os.path.join(os.path.realpath(f"{before}.."), after)
    return name if _is_same(name, real) else os.path.abspath(real)


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


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


def names_digest(folder: str, without: Collection[str] = ()) -> str:
    """Return the digest of the names in a folder.

    Hidden ones do not count, nor tables and figures that this package has written.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    kept = [
        name
        for name in names
        if not name.startswith((".", "__pycache__"))
        and name not in without
        and not (name == RESULTS and _is_made_here(os.path.join(folder, name)))
    ]
    return sha256("\0".join(kept).encode(errors="surrogateescape")).hexdigest()


def _is_made_here(folder: str) -> bool:
    return next(Path(folder).glob(f"*/{MANIFEST}"), None) is not None


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


def file_content_digest(path: Path) -> str:
    """Return the SHA-256 of a file, read once while nothing about it changes.

    Raises:
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    stat = stat_of(name)
    known = None if stat is None else content_digest(name, stat)
    if known is None:  # it is being written, or no file, of which this says why
        with path.open("rb") as file:
            known = file_digest(file, "sha256").hexdigest()
    return known


def is_settled(stat: Stat) -> bool:
    """Return whether a change from now on would have another time than the last one."""
    return time.time_ns() - max(stat[1], stat[2]) > TICK


def portable_name(path: str, folder: str) -> str:
    """Return the name of an absolute path in the store of a study.

    Relative to the study's folder; but from the home folder on, as `~/...`, where the
    way from one to the other would name it.
    """
    home = _home()
    name = os.path.relpath(path, folder)
    is_below = not name.startswith("../") and name != ".."
    if home and _is_in(path, home) and not _is_in(_common(path, folder), home):
        parts = ["~", *map(_escaped, os.path.relpath(path, home).split("/"))]
    else:
        parts = [_escaped(part) for part in name.split("/")]
        parts[:1] = [".", "~"] if parts[0] == "~" else parts[:1]
    if not is_below:
        user = os.path.basename(home)
        parts = [USER if part == user else part for part in parts]
    return "/".join(parts) + ("/" if path.endswith("/") else "")


def path_of(name: str, folder: str) -> str:
    """Return the absolute path that a name in a store stands for."""
    home = _home()
    parts = [
        os.path.basename(home) if part == USER else _ESCAPED.sub(r"\1", part)
        for part in name.split("/")
    ]
    if parts[0] == "~":
        parts[0] = home or "~"
    path = os.path.normpath(os.path.join(folder, *parts))
    return f"{path}/" if name.endswith("/") else path


# A folder that is named as what stands for the user has one sign more.
_ESCAPED = re.compile(r"^\$(\$+USER)$")


def _escaped(part: str) -> str:
    return f"${part}" if re.fullmatch(r"\$+USER", part) else part


def _common(path: str, folder: str) -> str:
    return os.path.commonpath([path, folder])


def _home() -> str:
    """Return the user's folder; empty if the system knows none."""
    home = os.path.expanduser("~")
    return "" if home == "~" else home.rstrip("/")


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
