"""Windows: what a user's code read in one call."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from curvflow.flows.reads import ledgers
from curvflow.flows.reads.between_calls import background, generators, moved
from curvflow.flows.reads.hook import (
    PROCESS,
    SOURCE,
    VARIABLE,
    Callers,
    Importing,
    loaded,
    looking,
)
from curvflow.flows.reads.ledgers import (
    CHANGING,
    Assigned,
    Loads,
    Sights,
    assigned_now,
    digested,
    is_same,
    link,
    look,
    merge,
    source_file,
    unseen,
    with_parents,
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
    is_script,
    is_users,
    names_digest,
    path_of,
    portable_name,
    stat_of,
    value_digest,
)
from curvflow.schemas.kinds import plugins


class Window:
    """Record of what the process reads while a user's code runs.

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
        self._is_begun = True  # by this process, and so by nobody else

    def note(self, name: str, sight: Sight, callers: Callers) -> None:
        """Take down what was read, as it was at the first look."""
        if name in self._own or name in self._set:
            return
        self._look_at(callers.modules)
        if name.startswith(VARIABLE) and (known := assigned_now(name)):
            sight = known.before
            merge(self._seen, known.reads)
        first = self._seen.setdefault(name, sight)
        if name not in self._changed and not is_same(name, first, sight):
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
        """Note a file or variable written: the call's own, unless it was read."""
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
        is_followed = how.importer or how.by in self._modules
        is_call = bool(self._modules and (callers.modules or callers.importing))
        if is_call and (how.is_computed or not is_followed):
            # What bodies do while modules are imported, `stated` and `linked` tell.
            ledgers.by_name.update(modules)
        if how.importer and not how.is_computed:
            ledgers.stated[how.importer].update(modules)
            return
        followed = set[str]() if how.is_computed else with_parents(self._modules)
        names = dict.fromkeys(set(modules) - followed, not how.is_computed)
        for module in callers.importing:
            link(ledgers.linked[module], names)
            ledgers.through[module].update((name, how.by) for name in modules)
        if callers.modules:
            link(self._reached, names)
            for module in callers.modules:
                link(self._reached_by[module], names)
            self._look_at(callers.modules)

    def failed(self, error: Exception) -> None:
        """Take down that something could not be taken down."""
        self._faults.add(f"something that could not be recorded: {error!r}")

    def remember_imports(self) -> None:
        """Take modules that were loaded since for new; their state before is gone.

        What their bodies import by statements is known already.
        """
        for name in self._new_modules():
            ledgers.specs[name] = getattr(sys.modules.get(name), "__spec__", None)
            for known in (ledgers.imported, ledgers.held):
                known.pop(name, None)

    def _new_modules(self) -> list[str]:
        if sys.modules == self._loaded:  # told in a tenth of the time
            return []
        modules = list(sys.modules.items())
        return [name for name, m in modules if self._loaded.get(name) is not m]

    def pass_on(self) -> None:
        """Leave what was read to the modules that were imported, or that hold it."""
        for module, names in self._while_importing.items():
            held = ledgers.imported.setdefault(module, {})
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
        known = ledgers.assigned.get(name)
        if known is not None and known.after == before.digest:
            before = known.before
        after = value_digest(variable, os.environ.get(variable))
        ledgers.assigned[name] = Assigned(before, after, dict(self._seen))

    def _leave_to(self, module: str, changed: Collection[str]) -> None:
        """Let a module hold what may be in its names that have changed."""
        names: Collection[str] = self._read_by.get(module, ())
        links = self._reached_by.get(module, {})
        if not (names or links) or not takes_nothing(module, changed):
            names, links = self._seen.keys(), self._reached
        kept = {name: self._seen[name] for name in names if name in self._seen}
        ledgers.held[module].update(kept)
        link(ledgers.linked[module], links)

    def keep_all(self) -> None:
        """Let the modules hold what was read, whatever their state says."""
        for module in self._modules:
            ledgers.held[module].update(self._seen)

    def sights(self) -> dict[str, Sight]:
        """Return what the call stands on, with the digests of all files."""
        seen = {n: s for n, s in self._seen.items() if not self._is_own(n, s)}
        seen = {name: self._listing(name, sight) for name, sight in seen.items()}
        outside = self._outside()
        for module in outside:
            if file := source_file(module):
                seen.setdefault(file, loaded.get(file) or Sight(stat_of(file)))
        for module in with_parents(self._modules) | outside.keys():
            for ledger in (ledgers.imported, ledgers.held):
                kept = ledger.get(module, {})
                # Once for all calls, which may be many more than the files are.
                kept.update((n, digested(n, s)) for n, s in kept.copy().items())
                merge(seen, kept.copy())
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

        The value states whether import statements do, in functions.
        """
        pending, outside = list(self._reached.items()), dict[str, bool]()
        for module in with_parents(self._modules):
            pending += ledgers.linked.get(module, {}).copy().items()
        while pending:
            module, is_stated = pending.pop()
            if module in outside and outside[module] <= is_stated:
                continue
            outside[module] = is_stated and outside.get(module, True)
            more = with_parents([module]) - {module}
            more |= ledgers.stated.get(module, set()).copy()
            pending += dict.fromkeys(more, outside[module]).items()
            links = ledgers.linked.get(module, {}).copy()
            pending += [(name, outside[module] and links[name]) for name in links]
        return outside

    def _beyond(self) -> dict[str, Sights]:
        """Return what each module stands on that import statements alone lead to.

        Those of bodies. Text follows most of them, but none from another folder on
        Python's path, or without a source.
        """
        followed, beyond = with_parents(self._modules), set[str]()
        pending = list(followed)
        while pending:
            module = pending.pop()
            if module not in beyond:
                beyond.add(module)
                pending += ledgers.stated.get(module, set()).copy()
                if module not in followed:
                    pending += with_parents([module])
                    pending += ledgers.linked.get(module, {}).copy()
        return _stood_on(beyond - followed)

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

    def goes_on(self) -> None:
        """Take down that a call goes on from what another process may have begun."""
        self._is_begun = False

    def observed(self) -> Observed:
        """Return what the call used, to be kept with its results."""
        sights = self.sights()
        if {f"{VARIABLE}{name}" for name in os.environ} <= sights.keys():
            # Who copies all of them uses none, as far as can be told.
            sights = {n: s for n, s in sights.items() if not n.startswith(VARIABLE)}
        hidden = (*unseen(self._modules), *sorted(self._faults))
        loads = self._loads()
        if hidden or PROCESS in sights or not self._is_begun:
            loads = None
        named = _stood_on(ledgers.by_name.copy())
        parts = self._statements(), loads, self._beyond(), named
        return Observed(sights, hidden, *parts)

    def _loads(self) -> Loads | None:
        """Return what computed names have led to in this process, and beyond.

        None if some of it may have gone unseen. A script or a notebook may call
        functions by itself, at which nobody looks.
        """
        is_all = ledgers.UNKNOWN not in ledgers.by_name and not is_script()
        return ledgers.loads(self._modules) if is_all else None

    def _is_own(self, name: str, sight: Sight) -> bool:
        """Return whether the call has changed, or made, what it also read."""
        if name.startswith(VARIABLE) or sight.stat is None:
            return False
        now = stat_of(name)
        if name in self._changed:
            return now != sight.stat
        return now is None and sight.stat[2] >= self._begun - TICK


# Of files that modules were loaded from, or have read, for each call is asked of all.
_digested: dict[tuple[str, Sight], Sight] = {}


def _digested_once(name: str, sight: Sight) -> Sight:
    if (name, sight) not in _digested:
        _digested[name, sight] = digested(name, sight)
    return _digested[name, sight]


def _stood_on(modules: Iterable[str]) -> dict[str, Sights]:
    """Return what modules of a user's stand on: their files, and what these read."""
    sights: dict[str, Sights] = {}
    for module in modules:
        file, seen = source_file(module), dict[str, Sight]()
        if file and is_users(module):
            seen[file] = loaded.get(file) or Sight(stat_of(file))
            for ledger in (ledgers.imported, ledgers.held):
                merge(seen, ledger.get(module, {}).copy())
            sights[module] = {n: _digested_once(n, s) for n, s in seen.items()}
    return sights


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


@dataclass(frozen=True)
class Observed:
    """Record of what a user's code used for one result.

    Attributes:
        sights: by absolute path, or name of the variable or source.
        unseen: modules that were imported before anybody looked.
        stated: modules that import statements in functions lead to, by their files.
        loads: what computed names may have led to; None if not all of it is known.
        beyond: by module that import statements of bodies lead to, what it stands on;
            it counts where no text follows the module.
        named: the same of modules that calls of this process have loaded by computed
            names; it counts for code that looks for modules in `sys.modules`.
    """

    sights: Sights
    unseen: tuple[str, ...] = ()
    stated: Mapping[str, str] = field(default_factory=dict)
    loads: Loads | None = None
    beyond: Mapping[str, Sights] = field(default_factory=dict)
    named: Mapping[str, Sights] = field(default_factory=dict)

    def with_others(
        self, followed: Mapping[str, str], asking: Collection[str] | None = None
    ) -> Observed:
        """Add what modules stand on that no text follows.

        Args:
            followed: the digest of each module whose text was read.
            asking: the modules that code follows which requests modules; None of other
                code.
        """
        others = [s for name, s in self.beyond.items() if not followed.get(name)]
        if asking is not None:
            others += [s for name, s in self.named.items() if name not in asking]
        seen = dict(self.sights)
        for sights in others:
            merge(seen, sights)
        return replace(self, sights=seen, beyond={}, named={})


# `module:name`, as nothing else in a study has a colon before a letter.
_CODE = re.compile(r"\w:[A-Za-z_]")


def may_import(*texts: str) -> bool:
    """Return whether a study of some texts may import modules of a user's.

    The hook costs every process that has it a little, so one that runs built-in code
    alone is to have none.
    """
    return any(map(_CODE.search, texts)) or bool(plugins())


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
