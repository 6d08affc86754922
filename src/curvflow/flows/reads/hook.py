"""The audit hook of this process, and the windows through which it looks.

Python cannot take an audit hook back, so one is installed with the first window, and
does nothing while none is open. A window is opened while a user's function runs, or a
user's module is imported. Whatever the process does meanwhile, in any thread, is seen,
unless the stack says that this package, Dask or a server did it.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from curvflow.flows.reads.places import (
    Sight,
    is_skipped,
    names_digest,
    origin,
    source_of,
    stat_of,
    value_digest,
)

# Threads of these read for themselves, whatever a user's function does meanwhile.
SERVERS = ("distributed", "prefect", "tornado", "ipykernel", "IPython", "zmq")
IMPORTLIB = "importlib._bootstrap"
FILE_LOADER = "importlib._bootstrap_external"

VARIABLE, SOURCE = "variable:", "source:"
NETWORK, PROCESS = f"{SOURCE}network", f"{SOURCE}process"


@dataclass
class Callers:
    """The code of a user's on a stack.

    Attributes:
        modules: names of the modules whose functions run.
        importing: those that are being imported.
        is_computed: a module is imported by a name that no import statement says.
    """

    modules: set[str] = field(default_factory=set)
    importing: set[str] = field(default_factory=set)
    is_computed: bool = False


class Eye(Protocol):
    """A window; see `windows.Window`."""

    frames: frozenset[FrameType]
    thread: int

    def note(self, name: str, sight: Sight, callers: Callers) -> None:
        """Take down what was read."""

    def written(self, path: str, *, anew: bool) -> None:
        """Take down a file that is written, `anew` if what it held is not read."""


_eyes: tuple[Eye, ...] = ()
_lock = threading.Lock()
_busy = threading.local()
_is_installed = False


@contextmanager
def looking(eye: Eye) -> Iterator[None]:
    """Let a window see what the process does until the block ends."""
    global _eyes, _is_installed
    with _lock:
        if not _is_installed:
            sys.addaudithook(_heard)
            _is_installed = True
        if not _eyes:
            _patches.enter_context(_variables_told())
            _patches.enter_context(_seeds_told())
        _eyes = (*_eyes, eye)
    try:
        yield
    finally:
        with _lock:
            _eyes = tuple(other for other in _eyes if other is not eye)
            if not _eyes:
                _patches.close()


_patches = ExitStack()


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if _eyes and event in _EVENTS and not getattr(_busy, "is_set", False):
        _quietly(_EVENTS[event], args)


def _quietly(note: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Take something down; what goes wrong here is no fault of the user's call."""
    _busy.is_set = True
    try:
        note(*args)
    except Exception:  # an audit hook that raises ends what it hears of
        pass
    finally:
        _busy.is_set = False


def _opened(path: Any, mode: Any = None, flags: int = 0) -> None:
    name = "" if isinstance(path, int) else _absolute(path)
    callers = _callers() if name else None
    if callers is None:
        return
    access = flags & os.O_ACCMODE
    anew = access == os.O_WRONLY or flags & (os.O_CREAT | os.O_TRUNC) != 0
    if access != os.O_RDONLY:
        _written(name, anew=anew)
    if access == os.O_RDONLY or not anew:
        _read(name, callers, is_import=_is_import(sys._getframe(3)))


def _read(name: str, callers: Callers, *, is_import: bool) -> None:
    if is_import:
        if not callers.is_computed:
            return  # the text says so, and a fingerprint follows it
        name = source_of(name)
    stat = stat_of(name)
    is_other = os.path.isdir(name) or (stat is None and os.path.exists(name))
    if not is_other:  # than a file, or none
        _note(name, Sight(stat), callers)


def _listed(path: Any = None, *_: Any) -> None:
    name = None if isinstance(path, int) else _absolute("." if path is None else path)
    frame = sys._getframe(3)
    if name and not _is_import(frame) and (callers := _callers()) is not None:
        _note(f"{name}/", Sight(stat_of(name), names_digest(name)), callers)


def _renamed(source: Any, target: Any, *_: Any) -> None:
    if name := _absolute(target):
        _written(name, anew=True)


def _connected(database: Any, *_: Any) -> None:
    text = os.fsdecode(database)
    if text.startswith("file:"):
        text = text.removeprefix("file:").partition("?")[0]
    if text and text != ":memory:":
        _opened(text, None, os.O_RDWR)


def _went_out(*_: Any) -> None:
    if (callers := _callers()) and callers.modules | callers.importing:
        _note(NETWORK, Sight(), callers)


def _started(*_: Any) -> None:
    if (callers := _callers()) and callers.modules | callers.importing:
        _note(PROCESS, Sight(), callers)


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "os.rename": _renamed,
    "sqlite3.connect": _connected,
    **dict.fromkeys(("socket.connect", "socket.getaddrinfo"), _went_out),
    **dict.fromkeys(
        ("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.exec"),
        _started,
    ),
}


def _absolute(path: Any) -> str:
    """Return an absolute path; empty for what is never a user's data."""
    name = os.path.abspath(os.fsdecode(path))
    return "" if is_skipped(name) else name


def _note(name: str, sight: Sight, callers: Callers) -> None:
    for eye in _eyes:
        eye.note(name, sight, callers)


def _written(name: str, *, anew: bool) -> None:
    for eye in _eyes:
        eye.written(name, anew=anew)


def _is_import(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == FILE_LOADER


def _callers() -> Callers | None:
    """Return the user's code on this stack; None where none of it has to do with it.

    In a thread that the user's code has started, what is imported is told by the
    window's own thread.
    """
    here = threading.get_ident()
    ends = {frame for eye in _eyes for frame in eye.frames}
    callers = Callers()
    if not _walk(sys._getframe(2), ends, callers):
        return None
    threads = {eye.thread for eye in _eyes}
    if here not in threads:
        frames = sys._current_frames()
        for thread in threads & frames.keys():
            _walk(frames[thread], ends, callers)
    return callers


def _walk(frame: FrameType | None, ends: set[FrameType], callers: Callers) -> bool:
    """Go up a stack to a window; False if it is none of the user's business."""
    below, serves = "", False
    while frame is not None and frame not in ends:
        name = str(frame.f_globals.get("__name__", ""))
        whose = origin(frame.f_code.co_filename)
        if whose == "curvflow" and not callers.modules | callers.importing:
            if not name.startswith(("curvflow.tasks", __name__)):
                return False
        elif whose == "user":
            is_body = frame.f_code.co_name == "<module>"
            (callers.importing if is_body else callers.modules).add(name)
        serves |= name.partition(".")[0] in SERVERS
        if below.startswith(IMPORTLIB) and not name.startswith(IMPORTLIB):
            callers.is_computed |= whose != "curvflow" and not _is_statement(frame)
        below, frame = name, frame.f_back
    return not serves or bool(callers.modules | callers.importing)


def serves() -> bool:
    """Return whether another thread of this process runs a server or its client."""
    here = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        above: FrameType | None = frame if thread != here else None
        while above is not None:
            name = str(above.f_globals.get("__name__", ""))
            if name.partition(".")[0] in SERVERS:
                return True
            above = above.f_back
    return False


def _is_statement(frame: FrameType) -> bool:
    """Return whether a frame is at an import statement, or was called by this package.

    `import_module` itself is Python's; who calls it counts.
    """
    above = frame.f_back
    if above is not None and origin(above.f_code.co_filename) == "curvflow":
        return True
    code = frame.f_code.co_code
    return dis.opname[code[frame.f_lasti]] == "IMPORT_NAME"


@contextmanager
def _variables_told() -> Iterator[None]:
    """Have each variable noted that a user's code reads from `os.environ`."""
    environ: Any = os.environ
    encode = environ.encodekey

    def told(key: str) -> Any:
        reads = sys._getframe(1).f_code.co_name == "__getitem__"
        if reads and not getattr(_busy, "is_set", False):
            _quietly(_read_variable, (key, sys._getframe(2)))
        return encode(key)

    environ.encodekey = told
    try:
        yield
    finally:
        environ.encodekey = encode


def _read_variable(key: str, frame: FrameType | None) -> None:
    # `get`, `getenv` and `in` are Python's; copying all of it names none.
    while frame is not None and frame.f_code.co_name in (
        "get",
        "getenv",
        "__contains__",
    ):
        frame = frame.f_back
    if frame is None or origin(frame.f_code.co_filename) != "user":
        return
    if (callers := _callers()) is not None:
        value = os.environ.get(key)
        _note(f"{VARIABLE}{key}", Sight(None, value_digest(key, value)), callers)


@contextmanager
def _seeds_told() -> Iterator[None]:
    """Have NumPy's generators noted that a user's code makes without a seed."""
    generators: Any = getattr(sys.modules.get("numpy.random"), "bit_generator", None)
    drawn = getattr(generators, "randbits", None)
    if drawn is None:
        yield
        return

    def told(bits: int) -> int:
        if not getattr(_busy, "is_set", False):
            _quietly(_drew, ())
        return int(drawn(bits))

    generators.randbits = told
    try:
        yield
    finally:
        generators.randbits = drawn


def _drew() -> None:
    if (callers := _callers()) and callers.modules | callers.importing:
        _note(f"{SOURCE}numpy.random without a seed", Sight(), callers)
