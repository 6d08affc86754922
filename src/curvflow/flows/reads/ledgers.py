"""Ledgers of this process: what its modules and variables hold from before.

A module is imported once per process, and a memo reads a file once. So what was read
while a module was imported counts for all that reach it, and so does what was read by
a call that left something in the module: a global bound again, a longer dictionary, a
fuller `functools.cache`.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from curvflow.flows.reads.hook import VARIABLE, loaded
from curvflow.flows.reads.places import (
    Sight,
    Stat,
    content_digest,
    is_settled,
    is_users,
    names_digest,
    stat_of,
    value_digest,
)

Sights = Mapping[str, Sight]
CHANGING = ""  # the digest of what did not stay the same while it was read

# By module: what was read while it was imported, and what it may hold since a call.
imported: dict[str, dict[str, Sight]] = {}
held: defaultdict[str, dict[str, Sight]] = defaultdict(dict)
specs: dict[str, object] = {}  # of the imports that were seen
# By module: those that its body imports by statements; and those that no text leads to,
# as it imports them by computed names or holds them since a call.
stated: defaultdict[str, set[str]] = defaultdict(set)
linked: defaultdict[str, dict[str, bool]] = defaultdict(dict)
# By module: those that functions of others import by statements while it is imported,
# each with the module of the function.
through: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
# Modules of a user's that calls of their code have loaded by computed names, in this
# process, where a later call may find them anywhere; with UNKNOWN if one was not
# looked at. What imports have loaded so is in `linked`.
UNKNOWN = ""
by_name: set[str] = set()


@dataclass(frozen=True)
class Assigned:
    """A variable that code of a user's has set: as it was before, and since."""

    before: Sight
    after: str
    reads: Mapping[str, Sight]


assigned: dict[str, Assigned] = {}


def is_same(name: str, first: Sight, sight: Sight) -> bool:
    """Return whether two looks saw one content."""
    if first.stat == sight.stat:
        return None in (first.digest, sight.digest) or first.digest == sight.digest
    if first.digest is None or None in (first.stat, sight.stat):
        return False
    return not name.endswith("/") and digested(name, sight).digest == first.digest


def link(links: dict[str, bool], names: Mapping[str, bool]) -> None:
    """Add modules, each with whether it is known by statements alone."""
    for name, is_stated in names.items():
        links[name] = is_stated and links.get(name, True)


def merge(seen: dict[str, Sight], source: Sights) -> None:
    """Add what was read before; what differs is changing."""
    for name, sight in source.items():
        other = seen.setdefault(name, sight)
        if other is not sight and digested(name, other)[1] != digested(name, sight)[1]:
            seen[name] = Sight(other.stat, CHANGING)


def assigned_now(name: str) -> Assigned | None:
    """Return what a variable was before, if code of a user's has given its value."""
    variable = name.removeprefix(VARIABLE)
    known = assigned.get(name)
    is_now = known and known.after == value_digest(variable, os.environ.get(variable))
    return known if is_now else None


# A stat that no file has: its content will be compared.
UNTRUSTED: Stat = (-1, -1, -1, -1)


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
        if known := assigned_now(name):
            return known.before
        variable = name.removeprefix(VARIABLE)
        return Sight(None, value_digest(variable, os.environ.get(variable)))
    if not name.startswith("/"):
        return Sight()
    digest = names_digest(name) if name.endswith("/") else None
    return digested(name, Sight(stat or stat_of(name), digest))


def forget_imports(modules: Iterable[str]) -> None:
    """Count modules as imported unseen, since a call of theirs was not looked at."""
    for name in modules:
        specs.pop(name, None)
        by_name.add(UNKNOWN)


def unseen(modules: Iterable[str]) -> list[str]:
    """Return the modules of a user's that were imported before anybody looked."""
    return [
        name
        for name in sorted(with_parents(modules))
        if is_users(name)
        and specs.get(name, specs) is not getattr(sys.modules[name], "__spec__", None)
    ]


class Loads(NamedTuple):
    """Modules and objects that computed names may have led to in this process.

    Attributes:
        whole: modules of which all may be used: of those whose names a fingerprint
            follows one by one, what was loaded so, or is imported by a module that no
            fingerprint follows; and what such a name has not found, which may
            come.
        passed: other followed ones that these import.
        texts: the digest of the file of each module that is reached so, as it was when
            it was loaded; empty without one, None if that is unknown.
    """

    whole: tuple[str, ...]
    passed: tuple[str, ...]
    texts: Mapping[str, str | None]


def loads(followed: Collection[str]) -> Loads:
    """Return what computed names may have led to, other than followed modules."""
    pending = [(name, True) for name in by_name.copy()]  # threads may add some
    for module in with_parents(followed):
        pending += _linked_from(module, followed)
    seen: dict[str, bool] = {}
    while pending:
        name, is_whole = pending.pop()
        if name in seen and seen[name] >= is_whole:
            continue
        seen[name] = is_whole
        pending += _linked_from(name, followed)
        passes = name not in followed
        inner = (with_parents([name]) - {name}) | stated.get(name, set()).copy()
        pending += [(other, passes) for other in inner]
    missing = {n for n, whole in seen.items() if n and whole and n not in sys.modules}
    known = sorted(name for name in seen if name in followed or name in missing)
    return Loads(
        tuple(name for name in known if seen[name]),
        tuple(name for name in known if not seen[name]),
        {name: _text(name) for name in seen if name},
    )


def _text(module: str) -> str | None:
    if not (file := source_file(module)):
        return ""
    sight = loaded.get(file)
    return digested(file, sight).digest or None if sight else None


def _linked_from(module: str, followed: Collection[str]) -> list[tuple[str, bool]]:
    """List what no text of a module leads to; of followed ones what a name computes."""
    passes = module not in followed
    links = linked.get(module, {}).copy()  # as threads may add some
    functions = through.get(module, set()).copy()
    others = [(name, by not in followed) for name, by in functions]
    return others + [(n, passes or not is_stated) for n, is_stated in links.items()]


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
