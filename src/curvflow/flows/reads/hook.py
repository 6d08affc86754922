"""The audit hook of this process, and the windows through which it looks.

Python cannot take an audit hook back, so one is installed with the first window, and
does nothing while none is open. A window is opened while a user's function runs, or a
user's module is imported. Whatever the process does meanwhile, in any thread, is seen,
unless the stack says that this package, Dask or a server did it.
"""

from __future__ import annotations

import builtins
import dis
import importlib._bootstrap
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import resolve_name
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from curvflow.flows.reads.places import (
    Sight,
    content_digest,
    is_skipped,
    is_temporary,
    is_users,
    names_digest,
    origin,
    physical,
    source_of,
    stat_of,
    temporary_folder,
    value_digest,
)

# Threads of these read for themselves, whatever a user's function does meanwhile.
SERVERS = ("distributed", "prefect", "tornado", "ipykernel", "IPython", "zmq")
IMPORTLIB = "importlib._bootstrap"
FILE_LOADER = "importlib._bootstrap_external"
FINDERS = (FILE_LOADER, "importlib.metadata", "importlib_metadata", "pkgutil")

VARIABLE, SOURCE = "variable:", "source:"
NETWORK, PROCESS = f"{SOURCE}network", f"{SOURCE}process"


@dataclass
class Callers:
    """The code of a user's on a stack.

    Attributes:
        modules: names of the modules whose functions run.
        importing: those that are being imported.
        is_computed: a module is imported by a name that no import statement says.
        is_installed: it is done by an installed module while it is imported.
    """

    modules: set[str] = field(default_factory=set)
    importing: set[str] = field(default_factory=set)
    is_computed: bool = False
    is_installed: bool = False


class Importing(NamedTuple):
    """A place that imports a module.

    Attributes:
        importer: the module whose body does it; empty in a function.
        is_computed: the name of the module is computed.
        by: the module whose code does it.
    """

    importer: str
    is_computed: bool
    by: str


class Eye(Protocol):
    """A window; see `windows.Window`."""

    frames: frozenset[FrameType]
    thread: int

    def note(self, name: str, sight: Sight, callers: Callers) -> None:
        """Take down what was read."""

    def written(self, name: str, before: Sight, *, anew: bool) -> None:
        """Note a file or variable written, `anew` if nothing remains of its content."""

    def imported(self, modules: list[str], how: Importing, callers: Callers) -> None:
        """Take down modules of a user's that are imported, loaded before or not."""

    def failed(self, error: Exception) -> None:
        """Take down that something could not be taken down."""


_eyes: tuple[Eye, ...] = ()
_lock = threading.Lock()
_busy = threading.local()
_is_installed = False

# Files of modules as they were when these were loaded.
loaded: dict[str, Sight] = {}
# Temporary files and folders that this process has made.
_made: set[str] = set()


@contextmanager
def looking(eye: Eye) -> Iterator[None]:
    """Let a window see what the process does until the block ends."""
    open_eye(eye)
    try:
        yield
    finally:
        close_eye(eye)


def open_eye(eye: Eye) -> None:
    """Let a window see what the process does."""
    global _eyes, _is_installed
    # Its first search opens files under a lock. Asked for where these are seen, it
    # would wait for itself.
    temporary_folder()
    with _lock:
        if not _is_installed:
            sys.addaudithook(_heard)
            _is_installed = True
        if not _eyes:
            for event in _NOTED:
                _patches.enter_context(event())
        _eyes = (*_eyes, eye)


def close_eye(eye: Eye) -> None:
    """Let a window see no more."""
    global _eyes
    with _lock:
        _eyes = tuple(other for other in _eyes if other is not eye)
        if not _eyes:
            _patches.close()


_patches = ExitStack()


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if _eyes and event in _EVENTS:
        _quietly(_EVENTS[event], sys._getframe(1), *args)


def _quietly(note: Callable[..., None], *args: Any) -> None:
    """Take something down; what goes wrong here is no fault of the user's call."""
    if getattr(_busy, "is_set", False):
        return
    _busy.is_set = True
    try:
        note(*args)
    except Exception as error:  # an audit hook that raises ends what it hears of
        for eye in _eyes:
            eye.failed(error)
    finally:
        _busy.is_set = False


def _opened(frame: FrameType, path: Any, _: Any = None, flags: int = 0) -> None:
    name = "" if isinstance(path, int) else _absolute(path)
    if not name:
        return
    access = flags & os.O_ACCMODE
    by_loader = frame.f_globals.get("__name__") == FILE_LOADER
    is_module = by_loader and access == os.O_RDONLY
    name = source_of(name) if is_module else name
    before = Sight(stat_of(name))
    if is_module:
        loaded[name] = before
    callers = _callers(frame)
    if callers is None or (is_module and not callers.is_computed):
        return  # what follows the import, or the text, counts a module
    if flags & os.O_EXCL:
        _make(name)
    _note_opened(name, before, callers, flags)


def _note_opened(name: str, before: Sight, callers: Callers, flags: int) -> None:
    access = flags & os.O_ACCMODE
    is_new = flags & os.O_TRUNC != 0 or (flags & os.O_CREAT and before.stat is None)
    if access != os.O_WRONLY and not (access == os.O_RDWR and is_new):
        is_other = before.stat is None and os.path.exists(name)
        if not is_other and not os.path.isdir(name):
            _note(name, before, callers)
    if access != os.O_RDONLY:
        for eye in _eyes:
            eye.written(name, before, anew=bool(is_new))


def _listed(frame: FrameType, path: Any = None, *_: Any) -> None:
    name = None if isinstance(path, int) else _absolute("." if path is None else path)
    seeks_modules = frame.f_globals.get("__name__") in FINDERS
    if not name or seeks_modules or (callers := _callers(frame)) is None:
        return
    if not callers.is_installed:  # as it seeks its own
        _note(f"{name}/", Sight(stat_of(name), names_digest(name)), callers)


def _linked(frame: FrameType, source: Any, target: Any, *_: Any) -> None:
    """Count a file that gets another name as read, as the name may be read."""
    name, other = _absolute(source), _absolute(target)
    callers = _callers(frame) if name or other else None
    if callers is None:
        return
    stat = stat_of(name) if name and not os.path.isdir(name) else None
    if stat is not None:  # its time changes with its names, so its content counts now
        _note(name, Sight(stat, content_digest(name, stat)), callers)
    for eye in _eyes if other else ():
        eye.written(other, Sight(stat_of(other)), anew=True)


def _made_folder(frame: FrameType, path: Any, *_: Any) -> None:
    name = os.path.abspath(os.fsdecode(path))
    if not os.path.exists(name) and _callers(frame) is not None:
        _make(name)
        for eye in _eyes:  # if it was asked for before
            eye.written(name, Sight(), anew=True)


def _make(name: str) -> None:
    # Threads that are followed when a call is over make nothing of its own.
    if is_temporary(name) and any(eye.frames for eye in _eyes):
        _made.add(name)


def _connected(frame: FrameType, database: Any, *_: Any) -> None:
    text, options = os.fsdecode(database), ""
    if text.startswith("file:"):
        text, _mark, options = text.removeprefix("file:").partition("?")
    if text and text != ":memory:":
        is_fixed = "mode=ro" in options
        _opened(frame, text, None, 0 if is_fixed else os.O_RDWR | os.O_CREAT)


def _went_out(frame: FrameType, *_: Any) -> None:
    _used(frame, NETWORK)


def _started(frame: FrameType, *_: Any) -> None:
    _used(frame, PROCESS)


def _used(frame: FrameType | None, source: str) -> None:
    callers = _callers(frame)
    if callers and callers.modules | callers.importing and not callers.is_installed:
        _note(source, Sight(), callers)


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "os.rename": _linked,
    "os.link": _linked,
    "os.mkdir": _made_folder,
    "sqlite3.connect": _connected,
    **dict.fromkeys(("socket.connect", "socket.getaddrinfo"), _went_out),
    **dict.fromkeys(
        ("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.exec"),
        _started,
    ),
}


def _absolute(path: Any) -> str:
    """Return an absolute path; empty for files that are never a user's data."""
    name = physical(os.fsdecode(path))
    return "" if is_skipped(name) or _is_made(name) else name


def _is_made(name: str) -> bool:
    """Return whether this process has made a temporary file, or a folder it is in."""
    if not _made or not is_temporary(name):
        return False
    parts = name.split("/")
    return any("/".join(parts[:end]) in _made for end in range(2, len(parts) + 1))


def _note(name: str, sight: Sight, callers: Callers) -> None:
    for eye in _eyes:
        eye.note(name, sight, callers)


def _callers(frame: FrameType | None) -> Callers | None:
    """Return the user's code on a stack; None where none of it has to do with it.

    In a thread that the user's code has started, imports are recorded by the
    window's own thread.
    """
    here = threading.get_ident()
    ends = {end for eye in _eyes for end in eye.frames}
    callers = Callers()
    if not _walk(frame, ends, callers):
        return None
    threads = {eye.thread for eye in _eyes}
    if here not in threads:
        frames = sys._current_frames()
        for thread in threads & frames.keys():
            _walk(frames[thread], ends, callers)
    return callers


def _walk(frame: FrameType | None, ends: set[FrameType], callers: Callers) -> bool:
    """Go up a stack to a window; False if it is none of the user's business."""
    below, serves, is_ours = "", False, False
    while frame is not None and frame not in ends:
        name = str(frame.f_globals.get("__name__", ""))
        whose = origin(frame.f_code.co_filename)
        is_body = frame.f_code.co_name == "<module>"
        if whose == "curvflow":
            is_ours |= not name.startswith(("curvflow.tasks", __name__))
        elif whose == "user":
            (callers.importing if is_body else callers.modules).add(name)
        elif is_body and not callers.modules | callers.importing:
            callers.is_installed = True
        serves |= name.partition(".")[0] in SERVERS
        if below.startswith(IMPORTLIB) and not name.startswith(IMPORTLIB):
            callers.is_computed |= whose != "curvflow" and not _is_statement(frame)
        below, frame = name, frame.f_back
    return bool(callers.modules | callers.importing) or not (serves or is_ours)


def serves() -> bool:
    """Return whether another thread of this process runs a server or its client."""
    here = threading.current_thread()
    return any(thread is not here for thread in server_threads())


def server_threads() -> list[threading.Thread]:
    """Return the threads of this process that run a server or its client."""
    frames = sys._current_frames()
    return [t for t in threading.enumerate() if _is_server(frames.get(t.ident or 0))]


def _is_server(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in SERVERS:
            return True
        frame = frame.f_back
    return False


def _is_statement(frame: FrameType) -> bool:
    """Return whether a frame is at an import statement, or was called by this package.

    `import_module` itself is Python's; who calls it counts.
    """
    above = frame.f_back
    if above is not None and origin(above.f_code.co_filename) == "curvflow":
        return True
    return _at_import(frame)


def _at_import(frame: FrameType) -> bool:
    """Return whether a frame is at an import statement."""
    code = frame.f_code.co_code
    return dis.opname[code[frame.f_lasti]] == "IMPORT_NAME"


@contextmanager
def _replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function by one around it, if there is such."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _imports_noted() -> Iterator[None]:
    """Have imports noted of modules that are loaded already: they raise no event."""

    def statement(real: Any) -> Any:
        def noted(
            name: str,
            globals: Any = None,  # as Python names it
            locals: Any = None,
            fromlist: Any = (),
            level: int = 0,
        ) -> Any:
            try:
                module = real(name, globals, locals, fromlist, level)
            # A module's body may raise anything, also what ends a process.
            except BaseException:
                if not _at_import(sys._getframe(1)):
                    _quietly(_untold, name, globals, level, sys._getframe(1))
                raise
            _has_imported(name, globals, fromlist, level, sys._getframe(1))
            return module

        return noted

    def computed(real: Any) -> Any:
        def noted(name: str, package: Any = None, level: int = 0) -> Any:
            whole = resolve_name("." * level + name, package) if level else name
            try:
                module = real(name, package, level)
            # It may raise anything, also what ends a process.
            except BaseException:
                _quietly(_failed, whole, sys._getframe(1))
                raise
            _quietly(_imported, [whole], sys._getframe(1), True)
            return module

        return noted

    with (
        _replaced(builtins, "__import__", statement),
        # `import_module`, under whatever name, calls it.
        _replaced(importlib._bootstrap, "_gcd_import", computed),
    ):
        yield


def _has_imported(
    name: str, scope: Any, members: Any, level: int, frame: FrameType
) -> None:
    within = scope.get("__package__") if level and scope else name
    if str(within).partition(".")[0] not in _libraries:
        _quietly(_stated, name, scope, members, level, frame)


# Packages that are installed, and no user's: functions that are called thousands of
# times import them.
_libraries: set[str] = set()


def _is_of_library(name: str) -> bool:
    top = name.partition(".")[0]
    # By the specification, which a library has before it is loaded.
    file = getattr(getattr(sys.modules.get(top), "__spec__", None), "origin", None)
    if file is not None and origin(file) != "user":
        _libraries.add(top)
    return top in _libraries


def _stated(
    name: str, scope: Any, members: Any, level: int, frame: FrameType | None
) -> None:
    name = _whole_name(name, scope, level)
    if _is_of_library(name):
        return
    inner = [f"{name}.{member}" for member in members or ()]
    if frame is None:
        return
    is_computed = not _at_import(frame)
    _imported([name, *inner], frame, is_computed)
    for member in inner if is_computed else ():
        if not hasattr(sys.modules.get(name), member.rpartition(".")[2]):
            _failed(member, frame)


def _whole_name(name: str, scope: Any, level: int) -> str:
    if not level:
        return name
    package = scope.get("__package__") or scope["__spec__"].parent
    return resolve_name("." * level + name, package)


def _untold(name: str, scope: Any, level: int, frame: FrameType) -> None:
    _failed(_whole_name(name, scope, level), frame)


def _failed(name: str, frame: FrameType) -> None:
    """Have it noted that a user's code has loaded no module by a computed name."""
    caller: FrameType | None = frame
    while caller and str(caller.f_globals.get("__name__")).startswith("importlib"):
        caller = caller.f_back
    if caller is None or origin(caller.f_code.co_filename) != "user":
        return  # a library tries what it may use
    if (callers := _callers(frame)) is not None:
        for eye in _eyes:
            eye.imported([name], Importing("", True, ""), callers)


def _imported(names: list[str], frame: FrameType, is_computed: bool) -> None:
    modules = [name for name in names if is_users(name)]
    if modules and (callers := _callers(frame)) is not None:
        is_body = frame.f_code.co_name == "<module>"
        by = str(frame.f_globals.get("__name__", ""))
        how = Importing(by if is_body else "", is_computed, by)
        for eye in _eyes:
            eye.imported(modules, how, callers)


@contextmanager
def _variables_noted() -> Iterator[None]:
    """Have each variable noted that a user's code reads from `os.environ`, or sets."""

    def wrap(encode: Any) -> Any:
        def noted(key: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_name == "__getitem__":
                _quietly(_read_variable, os.fsdecode(key), frame.f_back)
            elif frame.f_code.co_name in ("__setitem__", "__delitem__"):
                _quietly(_set_variable, os.fsdecode(key))
            return encode(key)

        return noted

    with (
        _replaced(os.environ, "encodekey", wrap),
        _replaced(os.environb, "encodekey", wrap),
    ):
        yield


# Python's own, which read a variable for their caller; copying all of them names none.
READERS = (
    "get",
    "getenv",
    "getenvb",
    "__contains__",
    "setdefault",
    "pop",
    "expandvars",
)


def _read_variable(key: str, frame: FrameType | None) -> None:
    while frame is not None and frame.f_code.co_name in READERS:
        frame = frame.f_back
    if frame is None or origin(frame.f_code.co_filename) != "user":
        return
    if (callers := _callers(frame)) is not None:
        value = os.environ.get(key)
        _note(f"{VARIABLE}{key}", Sight(None, value_digest(key, value)), callers)


def _set_variable(key: str) -> None:
    before = Sight(None, value_digest(key, os.environ.get(key)))
    for eye in _eyes:
        eye.written(f"{VARIABLE}{key}", before, anew=True)


@contextmanager
def _seeds_noted() -> Iterator[None]:
    """Have generators noted that a user's code makes, or seeds, without a seed."""

    def drawn(real: Any) -> Any:
        def noted(bits: int) -> int:
            _quietly(_used, sys._getframe(1), f"{SOURCE}numpy.random without a seed")
            return int(real(bits))

        return noted

    def seeded(source: str, first: int) -> Callable[[Any], Any]:
        def wrap(real: Any) -> Any:
            @wraps(real)
            def noted(*args: Any, **options: Any) -> Any:
                if all(seed is None for seed in (*args[first:], *options.values())):
                    _quietly(_unseeded, sys._getframe(1), source)
                return real(*args, **options)

            return noted

        return wrap

    bits = getattr(sys.modules.get("numpy.random"), "bit_generator", None)
    with (
        _replaced(bits, "randbits", drawn),
        _replaced(random, "seed", seeded("random", 0)),
        _replaced(random.Random, "seed", seeded("random", 1)),
        _replaced(sys.modules.get("torch"), "seed", seeded("torch", 0)),
    ):
        yield


def _unseeded(frame: FrameType, source: str) -> None:
    # A generator seeds itself when it is made.
    caller = frame.f_back if frame.f_code.co_name == "__init__" else frame
    if caller is not None and origin(caller.f_code.co_filename) == "user":
        _used(caller, f"{SOURCE}{source} without a seed")


@contextmanager
def _processes_noted() -> Iterator[None]:
    """Have processes noted that `multiprocessing` starts: they raise no event."""

    def wrap(real: Any) -> Any:
        @wraps(real)
        def noted(self: Any) -> None:
            _quietly(_started, sys._getframe(1))
            real(self)

        return noted

    module = sys.modules.get("multiprocessing.process")
    with _replaced(getattr(module, "BaseProcess", None), "start", wrap):
        yield


# Modules and packages that ask for a file on behalf of their caller.
_ASKING = frozenset(
    {
        *("genericpath", "numpy", "os", "pandas", "pathlib", "posixpath", "scipy"),
        "xarray",
    }
)


@contextmanager
def _questions_noted() -> Iterator[None]:
    """Have missing files noted that are only looked for: that raises no event."""

    def answered(real: Any) -> Any:
        @wraps(real)
        def noted(path: Any) -> bool:
            is_there = bool(real(path))
            if _eyes and not is_there:
                _quietly(_missed, sys._getframe(1), path)
            return is_there

        return noted

    def looked(real: Any) -> Any:
        @wraps(real)
        def noted(path: Any, **options: Any) -> Any:
            try:
                return real(path, **options)
            except (FileNotFoundError, NotADirectoryError):
                if _eyes:
                    _quietly(_missed, sys._getframe(1), path)
                raise

        return noted

    with (
        _replaced(os.path, "exists", answered),
        _replaced(os.path, "isfile", answered),
        _replaced(os.path, "isdir", answered),
        _replaced(os.path, "getsize", looked),
        _replaced(os.path, "getmtime", looked),
        _replaced(Path, "stat", looked),
    ):
        yield


def _top(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _missed(frame: FrameType, path: Any) -> None:
    """Note a missing file that a user's code requests, or that is looked for there."""
    name = "" if isinstance(path, int) else _absolute(path)
    if not name or is_temporary(name) or os.path.lexists(name):
        return
    asks: FrameType | None = frame
    while asks is not None and _top(asks) in _ASKING:
        asks = asks.f_back
    is_users_own = asks is not None and origin(asks.f_code.co_filename) == "user"
    # Where a traceback lies is no data: `inspect` looks for the sources of all modules.
    is_source = asks is not None and _top(asks) == "inspect"
    is_there = not is_source and name.startswith(f"{physical(os.getcwd())}/")
    if (is_users_own or is_there) and (callers := _callers(frame)) is not None:
        _note(name, Sight(), callers)


_NOTED = (
    *(_imports_noted, _variables_noted, _seeds_noted, _processes_noted),
    _questions_noted,
)
