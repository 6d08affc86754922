"""Windows: what a user's code read in one call, and what its modules hold from before.

A module is imported once per process, and a memo reads a file once. So what was read
while a module was imported counts for whoever reaches it, and so does what was read by
a call that left something in the module: a global bound again, a longer dictionary, a
fuller `functools.cache`.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import FrameType

from curvflow.flows.reads.chance import generators, moved
from curvflow.flows.reads.hook import SOURCE, VARIABLE, Callers, looking
from curvflow.flows.reads.memos import is_users, state_of
from curvflow.flows.reads.places import (
    Sight,
    Stat,
    content_digest,
    is_settled,
    names_digest,
    path_of,
    portable_name,
    stat_of,
    value_digest,
)

Sights = Mapping[str, Sight]
CHANGING = ""  # the digest of what did not stay the same while it was read

# By module: what was read while it was imported, and what it may hold since a call.
_imported: dict[str, dict[str, Sight]] = {}
_held: defaultdict[str, dict[str, Sight]] = defaultdict(dict)
_specs: dict[str, object] = {}  # of the imports that were seen


class Window:
    """What the process reads while a user's code runs.

    Attributes:
        frames: of the stack that it was opened on, none of which is the user's.
        thread: that opened it.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        """Look for a call that reaches these modules."""
        self.frames, self.thread = frozenset(_stack()), threading.get_ident()
        self._modules = set(modules)
        self._seen: dict[str, Sight] = {}
        self._own: set[str] = set()  # written by the call itself
        self._changed: set[str] = set()  # opened to be changed in place
        self._while_importing: defaultdict[str, set[str]] = defaultdict(set)
        self._before: dict[str, object] = {}
        self._read_by: defaultdict[str, set[str]] = defaultdict(set)

    def note(self, name: str, sight: Sight, callers: Callers) -> None:
        """Take down what was read, as it was at the first look."""
        if name in self._own:
            return
        for module in (self._modules | callers.modules) - self._before.keys():
            self._before[module] = state_of(sys.modules.get(module))
        first = self._seen.setdefault(name, sight)
        if first != sight and name not in self._changed:
            self._seen[name] = Sight(first.stat, CHANGING)
        for module in callers.importing:
            self._while_importing[module].add(name)
        for module in callers.modules:
            self._read_by[module].add(name)

    def written(self, path: str, *, anew: bool) -> None:
        """Take down a file that is written: the call's own, unless it was read."""
        if path not in self._seen or self._seen[path].stat is None:
            if anew:
                self._own.add(path)
                self._seen.pop(path, None)
        else:
            self._changed.add(path)

    def pass_on(self) -> None:
        """Leave what was read to the modules that were imported, or that hold it."""
        for module, names in self._while_importing.items():
            held = _imported.setdefault(module, {})
            held.update({n: self._seen[n] for n in names if n in self._seen})
        for module, before in self._before.items():
            if state_of(sys.modules.get(module)) != before:
                # What no function of it has read, another has put there.
                names = self._read_by.get(module) or set(self._seen)
                _held[module].update({n: self._seen[n] for n in names & {*self._seen}})

    def keep_all(self) -> None:
        """Let the modules hold what was read, whatever their state says."""
        for module in self._modules:
            _held[module].update(self._seen)

    def sights(self) -> dict[str, Sight]:
        """Return what the call stands on, with the digests of all files."""
        seen = {n: s for n, s in self._seen.items() if not self._is_own(n, s)}
        for module in with_parents(self._modules):
            for source in (_imported.get(module, {}), _held.get(module, {})):
                for name, sight in source.items():
                    other = seen.setdefault(name, sight)
                    if digested(name, other)[1] != digested(name, sight)[1]:
                        seen[name] = Sight(other.stat, CHANGING)
        return {name: digested(name, sight) for name, sight in seen.items()}

    def goes_on_from(self, name: str, digest: str | None) -> bool:
        """Return whether a kept state may be used that stands on a file or variable.

        If so the call stands on it as well.
        """
        now = look(name)
        if now.digest != digest:
            return False
        self._seen.setdefault(name, now)
        return True

    def observed(self) -> Observed:
        """Return what the call used, to be kept with its results."""
        sights = self.sights()
        if {f"{VARIABLE}{name}" for name in os.environ} <= sights.keys():
            # Who copies all of them uses none, as far as can be told.
            sights = {n: s for n, s in sights.items() if not n.startswith(VARIABLE)}
        return Observed(sights, tuple(unseen(self._modules)))

    def _is_own(self, name: str, sight: Sight) -> bool:
        """Return whether the call has changed a file that it also read."""
        return name in self._changed and stat_of(name) != sight.stat


# A stat that no file has: its content will be compared.
UNTRUSTED: Stat = (-1, -1, -1, -1)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


@dataclass(frozen=True)
class Observed:
    """What the code of a user's used for one result.

    Attributes:
        sights: by absolute path, or name of the variable or source.
        unseen: modules that were imported before anybody looked.
    """

    sights: Sights
    unseen: tuple[str, ...] = ()


def digested(name: str, sight: Sight) -> Sight:
    """Return a sight with the digest of the file, if it is one that is there."""
    if sight.stat is None or sight.digest is not None:
        return sight
    digest = content_digest(name, sight.stat)
    if digest is None:
        return Sight(sight.stat, CHANGING)
    return Sight(sight.stat if is_settled(sight.stat) else UNTRUSTED, digest)


def look(name: str) -> Sight:
    """Return a file, folder or variable as it is now."""
    if name.startswith(VARIABLE):
        variable = name.removeprefix(VARIABLE)
        return Sight(None, value_digest(variable, os.environ.get(variable)))
    if not name.startswith("/"):
        return Sight()
    digest = names_digest(name) if name.endswith("/") else None
    return digested(name, Sight(stat_of(name), digest))


# `module:name`, as nothing else in a study has a colon before a letter.
_CODE = re.compile(r"\w:[A-Za-z_]")


def may_import(*texts: str) -> bool:
    """Return whether a study of some texts may import modules of a user's.

    The hook costs every process that has it a little, so one that runs built-in code
    alone is to have none.
    """
    return any(map(_CODE.search, texts)) or bool(entry_points(group="curvflow.kinds"))


@contextmanager
def importing(*, is_likely: bool = True) -> Iterator[None]:
    """Look while modules of a user's are, or may be, imported."""
    if not is_likely:
        yield
        return
    known = len(sys.modules)
    window = Window()
    with looking(window):
        try:
            yield
        finally:
            _remember_imports(known)
            window.pass_on()


@contextmanager
def calling(
    modules: Collection[str], *, is_held: bool = False
) -> Iterator[Window | None]:
    """Look while a function of a user's runs that reaches some modules, if any.

    With `is_held` whatever it reads counts for later calls as well.
    """
    if not modules:
        yield None
        return
    known = len(sys.modules)
    window = Window(modules)
    before = generators()
    try:
        with looking(window):
            yield window
            for name in moved(before):
                window.note(f"{SOURCE}{name}", Sight(), Callers())
    finally:
        _remember_imports(known)
        window.pass_on()
        if is_held:
            window.keep_all()


def _remember_imports(known: int) -> None:
    """Note the imports since there were so many modules; new ones come last."""
    for name in list(sys.modules)[known:] if len(sys.modules) > known else ():
        _specs[name] = getattr(sys.modules.get(name), "__spec__", None)
        _imported.pop(name, None)
        _held.pop(name, None)


def forget_imports(modules: Iterable[str]) -> None:
    """Count modules as imported unseen, since a call of theirs was not looked at."""
    for name in modules:
        _specs.pop(name, None)


def unseen(modules: Iterable[str]) -> list[str]:
    """Return the modules of a user's that were imported before anybody looked."""
    return [
        name
        for name in sorted(with_parents(modules))
        if is_users(name)
        and _specs.get(name, _specs) is not getattr(sys.modules[name], "__spec__", None)
    ]


def source_files(modules: Iterable[str]) -> set[str]:
    """Return the files of modules that are loaded."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return {os.path.abspath(file) for file in files if file}


def with_parents(modules: Iterable[str]) -> set[str]:
    """Return modules with the packages that they are in."""
    parts = [name.split(".") for name in modules]
    return {".".join(p[: n + 1]) for p in parts for n in range(len(p))}


def stored_name(name: str, folder: str) -> str:
    """Return the name of a file, variable or source that a store may hold."""
    return f"file:{portable_name(name, folder)}" if name.startswith("/") else name


def known_name(name: str, folder: str) -> str:
    """Return the name that `stored_name` was given."""
    is_file = name.startswith("file:")
    return path_of(name.removeprefix("file:"), folder) if is_file else name


def variables(sights: Sights) -> dict[str, str]:
    """Return the digest of each variable that was read, by its name."""
    return {
        name.removeprefix(VARIABLE): sight.digest or ""
        for name, sight in sights.items()
        if name.startswith(VARIABLE)
    }


def sources(sights: Sights) -> list[str]:
    """Return the sources of chance that were used, in words."""
    return sorted(n.removeprefix(SOURCE) for n in sights if n.startswith(SOURCE))


def files(sights: Sights) -> dict[str, Sight]:
    """Return the files and folders that were looked at, by absolute path."""
    return {name: sight for name, sight in sights.items() if name.startswith("/")}
