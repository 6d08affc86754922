"""How often an edit that changes nothing is told, where a module counts as a whole.

    python -m benchmarks.false_alarms REPOSITORY:FOLDER ...   a package of a git folder

Takes the newest commits of a package's history that edit it, and for each as many of
its functions and classes as asked for, as if a kind ran them. An edit changes nothing
for one of them if its own definitions, followed name by name, are what they were.
Counted is how often its fingerprint moves all the same, since a module that it depends
on counts as a whole. It is counted twice: by the text alone, as without the record of a
run, where a computed name may lead to any module that is imported; and with one, in
which such names have led to modules of other packages. The package is renamed, so that
this one's own history is a user's too.

    --commits N   newest commits that edit the package (30)
    --entries N   functions and classes of each (20)
"""

from __future__ import annotations

import argparse
import io
import random
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from curvflow.flows.plan.code import fingerprints
from curvflow.flows.plan.code.fingerprints import Definitions
from curvflow.flows.plan.code.normal import Names
from curvflow.flows.plan.code.sources import Sources

NAME = "project"  # of the package, whatever it is called
# Definitions of modules that a commit does not edit are those of the one before.
_known: dict[bool, dict[Any, Any]] = {True: {}, False: {}}


class Reached(NamedTuple):
    """The digests of what a name reaches.

    Attributes:
        by_text: with all that computed names may lead to.
        by_record: with none of the package's modules for these.
    """

    by_text: dict[str, str]
    by_record: dict[str, str]


def main() -> None:
    """Print a line for each project, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("projects", nargs="+", metavar="REPOSITORY:FOLDER")
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--entries", type=int, default=20)
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for project in asked.projects:
        repository, _, package = project.rpartition(":")
        counts = count(repository, package, asked.commits, asked.entries)
        print(line(Path(package).name, counts), flush=True)
        total += counts
    print(line("all", total))


def line(name: str, counts: Counter[str]) -> str:
    """Word the counts of a project."""
    idle = counts["idle"]
    text, record = (
        f"{counts[way]} alarms ({counts[way] / idle if idle else float('nan'):.1%})"
        for way in Reached._fields
    )
    return (
        f"{name}: {counts['commits']} commits, {idle} edits that change nothing, "
        f"{record} with a record, {text} without; {counts['moved']} others"
    )


def count(repository: str, package: str, commits: int, entries: int) -> Counter[str]:
    """Count the outcomes of edits in a package's history."""
    counts: Counter[str] = Counter()
    listed = git(
        repository, "log", "--no-merges", "--format=%H", "--", f"{package}/*.py"
    )
    chosen = listed.split()[: commits + 1]
    drawn = random.Random(0)
    for after, before in pairwise(chosen):
        with exported(repository, before, package) as old:
            names = sorted(defined(old))
            few = drawn.sample(names, min(entries, len(names)))
            then = {way: digests(old, few, way) for way in (True, False)}
        with exported(repository, after, package) as new:
            now = {way: digests(new, few, way) for way in (True, False)}
        counts["commits"] += 1
        for name in few:
            if now[False][name] != then[False][name]:
                counts["moved"] += 1
                continue
            counts["idle"] += 1
            for way in Reached._fields:
                before_, after_ = (getattr(c[True][name], way) for c in (then, now))
                counts[way] += before_ != after_
    return counts


def git(repository: str, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", repository, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def files_of(repository: str, commit: str, package: str) -> Iterator[tuple[str, str]]:
    """Yield the Python files of a package as of a commit, and their texts."""
    command = ["git", "-C", repository, "archive", commit, "--", package]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)):
                yield member.name, file.read().decode()


class exported:  # noqa: N801 # reads as a verb where it is used
    """A package as of a commit, under another name, in a temporary folder."""

    def __init__(self, repository: str, commit: str, package: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        target, old = Path(self._folder.name), Path(package).name
        for file, text in files_of(repository, commit, package):
            place = target / NAME / Path(file).relative_to(package)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(re.sub(rf"\b{old}\b", NAME, text))

    def __enter__(self) -> Path:
        return Path(self._folder.name)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def defined(folder: Path) -> Iterator[str]:
    """Yield the public functions and classes of a package."""
    sources = Sources(folder, folder)
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        module = sources.module(name, frozenset({NAME}))
        for top, statements in module.parts.items() if module else ():
            if not top.startswith(("_", "<")) and hasattr(
                statements[0].statement, "decorator_list"
            ):
                yield f"{name}:{top}"


def digests(folder: Path, names: list[str], whole: bool) -> dict[str, Reached]:
    """Return the definitions that each name reaches; `whole` as this version does."""
    kept = fingerprints._is_theirs, fingerprints._known
    fingerprints._known = _known[whole]
    if not whole:
        fingerprints._is_theirs = _is_nobodys
    try:
        definitions = Definitions(Names(Sources(folder, folder), frozenset({NAME})))
        found = {}
        for name in names:
            ways = (definitions.reached([name], (), loads) for loads in (None, ()))
            found[name] = Reached(
                *({n: definitions.digest(n) for n in w} for w in ways)
            )
        return found
    finally:
        fingerprints._is_theirs, fingerprints._known = kept


def _is_nobodys(module_name: str) -> bool:
    return not module_name


if __name__ == "__main__":
    main()
