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
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from threading import Thread
from types import FrameType

from curvflow.flows.reads.chance import generators, moved
from curvflow.flows.reads.hook import (
    SOURCE,
    VARIABLE,
    Callers,
    Importing,
    close_eye,
    loaded,
    looking,
    open_eye,
    server_threads,
)
from curvflow.flows.reads.memos import (
    State,
    changed_names,
    state_of,
    takes_nothing,
)
from curvflow.flows.reads.places import (
    TICK,
    Sight,
    Stat,
    content_digest,
    is_settled,
    is_users,
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
# By module: those that its body imports by statements; and those that no text leads to,
# as it imports them by computed names or holds them since a call.
_stated: defaultdict[str, set[str]] = defaultdict(set)
_linked: defaultdict[str, dict[str, bool]] = defaultdict(dict)


@dataclass(frozen=True)
class _Assigned:
    """A variable that code of a user's has set: as it was before, and since."""

    before: Sight
    after: str
    reads: Mapping[str, Sight]


_assigned: dict[str, _Assigned] = {}


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
        self._begun = time.time_ns()
        self._loaded, self._threads = dict(sys.modules), set(threading.enumerate())
        self._seen: dict[str, Sight] = {}
        self._own: dict[str, Sight] = {}  # written by the call itself, as it was before
        self._changed: set[str] = set()  # opened to be changed in place
        self._set: dict[str, Sight] = {}  # variables, as they were before
        self._reached: dict[str, bool] = {}  # imported; whether by a statement
        self._reached_by: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        self._while_importing: defaultdict[str, set[str]] = defaultdict(set)
        self._before: dict[str, State] = {}
        self._read_by: defaultdict[str, set[str]] = defaultdict(set)
        self._faults: set[str] = set()

    def note(self, name: str, sight: Sight, callers: Callers) -> None:
        """Take down what was read, as it was at the first look."""
        if name in self._own or name in self._set:
            return
        self._look_at(callers.modules)
        if name.startswith(VARIABLE) and (known := _assigned_now(name)):
            sight = known.before
            _merge(self._seen, known.reads)
        first = self._seen.setdefault(name, sight)
        if name not in self._changed and not _is_same(name, first, sight):
            self._seen[name] = Sight(first.stat, CHANGING)
        elif first.digest is None:
            self._seen[name] = Sight(first.stat, sight.digest)
        for module in callers.importing:
            self._while_importing[module].add(name)
        for module in callers.modules:
            self._read_by[module].add(name)

    def _look_at(self, modules: Collection[str]) -> None:
        """Keep the state of the modules that may hold something later."""
        mine = {*self._modules, *self._reached, *modules}
        for module in mine - self._before.keys():
            self._before[module] = state_of(sys.modules.get(module))

    def written(self, name: str, before: Sight, *, anew: bool) -> None:
        """Take down what is written: the call's own, unless it was read."""
        seen = self._seen.get(name)
        if name.startswith(VARIABLE):
            self._set.setdefault(name, before)
        elif seen is not None and seen.stat is not None:
            self._changed.add(name)
        elif anew:
            self._own.setdefault(name, before)
            self._seen.pop(name, None)

    def imported(self, modules: list[str], how: Importing, callers: Callers) -> None:
        """Take down modules of a user's that are imported, loaded before or not."""
        if how.importer and not how.is_computed:
            _stated[how.importer].update(modules)
            return
        followed = set[str]() if how.is_computed else with_parents(self._modules)
        names = dict.fromkeys(set(modules) - followed, not how.is_computed)
        for module in callers.importing:
            _link(_linked[module], names)
        if callers.modules:
            _link(self._reached, names)
            for module in callers.modules:
                _link(self._reached_by[module], names)
            self._look_at(callers.modules)

    def failed(self, error: Exception) -> None:
        """Take down that something could not be taken down."""
        self._faults.add(f"something that could not be recorded: {error!r}")

    def remember_imports(self) -> None:
        """Take modules that were loaded since for new; what they held before is gone.

        What their bodies import by statements is known already.
        """
        for name in self._new_modules():
            _specs[name] = getattr(sys.modules.get(name), "__spec__", None)
            for known in (_imported, _held):
                known.pop(name, None)

    def _new_modules(self) -> list[str]:
        modules = list(sys.modules.items())
        return [name for name, m in modules if self._loaded.get(name) is not m]

    def pass_on(self) -> None:
        """Leave what was read to the modules that were imported, or that hold it."""
        for module, names in self._while_importing.items():
            held = _imported.setdefault(module, {})
            held.update({n: self._seen[n] for n in names if n in self._seen})
        for module, state in self._before.items():
            after = state_of(sys.modules.get(module))
            if changed := changed_names(state, after):
                self._leave_to(module, changed)
        for name, before in self._set.items():
            self._leave_variable(name, before)
        names = self._modules | {n for n in self._new_modules() if is_users(n)}
        background.follow(names, set(threading.enumerate()) - self._threads)

    def _leave_variable(self, name: str, before: Sight) -> None:
        """Remember a variable as it was before this process has set it."""
        variable = name.removeprefix(VARIABLE)
        known = _assigned.get(name)
        if known is not None and known.after == before.digest:
            before = known.before
        after = value_digest(variable, os.environ.get(variable))
        _assigned[name] = _Assigned(before, after, dict(self._seen))

    def _leave_to(self, module: str, changed: Collection[str]) -> None:
        """Let a module hold what may be in its names that have changed."""
        names: Collection[str] = self._read_by.get(module, ())
        links = self._reached_by.get(module, {})
        if not (names or links) or not takes_nothing(module, changed):
            names, links = self._seen.keys(), self._reached
        _held[module].update({n: self._seen[n] for n in names if n in self._seen})
        _link(_linked[module], links)

    def keep_all(self) -> None:
        """Let the modules hold what was read, whatever their state says."""
        for module in self._modules:
            _held[module].update(self._seen)

    def sights(self) -> dict[str, Sight]:
        """Return what the call stands on, with the digests of all files."""
        seen = {n: s for n, s in self._seen.items() if not self._is_own(n, s)}
        seen = {name: self._listing(name, sight) for name, sight in seen.items()}
        outside = self._outside()
        for module in outside:
            if file := source_file(module):
                seen.setdefault(file, loaded.get(file) or Sight(stat_of(file)))
        for module in with_parents(self._modules) | outside.keys():
            for kept in (_imported.get(module, {}), _held.get(module, {})):
                # Once for all calls, which may be many more than the files are.
                kept.update((n, digested(n, s)) for n, s in kept.items())
                _merge(seen, kept)
        return {name: digested(name, sight) for name, sight in seen.items()}

    def _statements(self) -> dict[str, str]:
        outside = self._outside().items()
        return {
            file: name
            for name, is_stated in outside
            if is_stated and (file := source_file(name))
        }

    def _outside(self) -> dict[str, bool]:
        """Return the modules that no text leads to, with all that they import.

        The value tells whether import statements do, in functions.
        """
        pending, found = list(self._reached.items()), dict[str, bool]()
        for module in with_parents(self._modules):
            pending += _linked.get(module, {}).items()
        while pending:
            module, is_stated = pending.pop()
            if is_stated <= found.get(module, False) and module in found:
                continue
            found[module] = is_stated and found.get(module, True)
            more = (with_parents([module]) - {module}) | _stated.get(module, set())
            pending += dict.fromkeys(more, found[module]).items()
            links = _linked.get(module, {})
            pending += [(name, found[module] and links[name]) for name in links]
        return found

    def _listing(self, name: str, sight: Sight) -> Sight:
        """Return a folder's names with those of the call's own, if these alone came."""
        new = {
            os.path.basename(path)
            for path, before in self._own.items()
            if before.stat is None and f"{os.path.dirname(path)}/" == name
        }
        if not new or names_digest(name, without=new) != sight.digest:
            return sight
        return Sight(sight.stat, names_digest(name))

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
        hidden = (*unseen(self._modules), *sorted(self._faults))
        return Observed(sights, hidden, self._statements())

    def _is_own(self, name: str, sight: Sight) -> bool:
        """Return whether the call has changed, or made, what it also read."""
        if name.startswith(VARIABLE) or sight.stat is None:
            return False
        now = stat_of(name)
        if name in self._changed:
            return now != sight.stat
        return now is None and sight.stat[2] >= self._begun - TICK


class _Background:
    """Threads of a user's that go on when a call or an import is over.

    What they read counts for all that reach the modules of that call.
    """

    frames: frozenset[FrameType] = frozenset()
    thread = -1

    def __init__(self) -> None:
        self._modules: dict[Thread, Collection[str]] = {}

    def follow(self, modules: Collection[str], threads: Collection[Thread]) -> None:
        """Look on while some threads live, but for those of servers."""
        lasting = dict.fromkeys(set(threads) - set(server_threads()), modules)
        known = self._modules | lasting
        self._turn_to({t: names for t, names in known.items() if t.is_alive()})

    def drop(self) -> None:
        """Follow no thread any more."""
        self._turn_to({})

    def _turn_to(self, modules: dict[Thread, Collection[str]]) -> None:
        was_open, self._modules = bool(self._modules), modules
        if bool(modules) != was_open:
            (close_eye if was_open else open_eye)(self)

    def note(self, name: str, sight: Sight, _: Callers) -> None:
        """Take down what one of the threads reads."""
        for module in self._modules.get(threading.current_thread(), ()):
            _merge(_held[module], {name: sight})

    def written(self, name: str, before: Sight, *, anew: bool) -> None:
        """Do nothing."""

    def imported(self, modules: list[str], how: Importing, callers: Callers) -> None:
        """Do nothing; imports in threads are rare."""

    def failed(self, error: Exception) -> None:
        """Do nothing."""


background = _Background()


def _is_same(name: str, first: Sight, sight: Sight) -> bool:
    """Return whether two looks saw one content."""
    if first.stat == sight.stat:
        return None in (first.digest, sight.digest) or first.digest == sight.digest
    if first.digest is None or None in (first.stat, sight.stat):
        return False
    return not name.endswith("/") and digested(name, sight).digest == first.digest


def _link(links: dict[str, bool], names: Mapping[str, bool]) -> None:
    """Add modules, each with whether it is known by statements alone."""
    for name, is_stated in names.items():
        links[name] = is_stated and links.get(name, True)


def _merge(seen: dict[str, Sight], source: Sights) -> None:
    """Add what was read before; what differs is changing."""
    for name, sight in source.items():
        other = seen.setdefault(name, sight)
        if other is not sight and digested(name, other)[1] != digested(name, sight)[1]:
            seen[name] = Sight(other.stat, CHANGING)


def _assigned_now(name: str) -> _Assigned | None:
    """Return what a variable was before, if code of a user's has given its value."""
    variable = name.removeprefix(VARIABLE)
    known = _assigned.get(name)
    is_now = known and known.after == value_digest(variable, os.environ.get(variable))
    return known if is_now else None


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
        stated: modules that import statements in functions lead to, by their files.
    """

    sights: Sights
    unseen: tuple[str, ...] = ()
    stated: Mapping[str, str] = field(default_factory=dict)


def digested(name: str, sight: Sight) -> Sight:
    """Return a sight with the digest of the file, if it is one that is there."""
    if sight.stat is None or sight.digest is not None:
        return sight
    digest = content_digest(name, sight.stat)
    if digest is None:
        return Sight(sight.stat, CHANGING)
    return Sight(sight.stat if is_settled(sight.stat) else UNTRUSTED, digest)


def look(name: str, stat: Stat | None = None) -> Sight:
    """Return a file, folder or variable as it is now; as `CHANGING` if not of a stat.

    A variable that code of a user's has set is as it was before.
    """
    if name.startswith(VARIABLE):
        if known := _assigned_now(name):
            return known.before
        variable = name.removeprefix(VARIABLE)
        return Sight(None, value_digest(variable, os.environ.get(variable)))
    if not name.startswith("/"):
        return Sight()
    digest = names_digest(name) if name.endswith("/") else None
    return digested(name, Sight(stat or stat_of(name), digest))


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
    window = Window()
    with looking(window):
        try:
            yield
        finally:
            window.remember_imports()
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
    window = Window(modules)
    before = generators()
    try:
        with looking(window):
            yield window
            for name in moved(before):
                window.note(f"{SOURCE}{name}", Sight(), Callers())
    finally:
        window.remember_imports()
        window.pass_on()
        if is_held:
            window.keep_all()


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
    return {file for name in modules if (file := source_file(name))}


def source_file(module: str) -> str:
    """Return the file of a module; empty if it has none, or is not loaded."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return os.path.abspath(file) if file else ""


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
