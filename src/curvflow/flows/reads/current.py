"""Files and variables that receipts name, compared with those of now."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from typing import Any

from curvflow.flows.reads.hook import VARIABLE
from curvflow.flows.reads.ledgers import CHANGING, look
from curvflow.flows.reads.places import (
    Sight,
    Stat,
    path_of,
    portable_name,
    stat_of,
)
from curvflow.flows.reads.windows import Observed, files, sources, variables
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.study.stage import Stage


@dataclass(frozen=True, slots=True)
class Outdated:
    """A file or variable that is not as it was when a result was computed.

    Attributes:
        what: `file` or `variable`.
        name: of the file, relative to the study, or of the variable.
        text: what happened to it, in words.
        old: digest before; None if it was not there, or is not known.
        new: digest now; None if it is not there.
    """

    what: str
    name: str
    text: str
    old: str | None = None
    new: str | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.name}: {self.text}"


class CurrentReads:
    """The files and variables of one plan, as they were when it was made.

    A declared one that is another when a result is published changed meanwhile, so
    the content that the result was computed with is unknown.
    """

    def __init__(self, folder: Path, stages: Mapping[str, Stage]) -> None:
        """Look for files relative to the study's folder."""
        self._folder = str(folder.resolve())
        self._stages = stages
        self._sights: dict[str, Sight] = {}
        self._stats: dict[str, Stat | None] = {}
        self._names: dict[str, str] = {}
        self._known: dict[tuple[int, str], tuple[Any, tuple[Outdated, ...]]] = {}
        self._files = {name: self._declared(stage) for name, stage in stages.items()}
        self._variables = {name: stage.env for name, stage in stages.items()}
        for name in {name for names in self._files.values() for name in names}:
            self._stat(name)
        self._values = {
            name: look(f"{VARIABLE}{name}").digest or ""
            for name in {name for names in self._variables.values() for name in names}
        }

    def check(self, stages: Iterable[str]) -> None:
        """Check that the files are there that some stages declare.

        Raises:
            StudyError: a pattern matches none.
        """
        for stage in map(self._stages.__getitem__, stages):
            for number, pattern in enumerate(stage.files):
                if not self._matches(pattern):
                    raise stage.error(("files", number), *_no_file(pattern))

    def begin(self, stages: Iterable[str]) -> None:
        """Read the files that stages declare, before their nodes are computed."""
        for name in dict.fromkeys(n for stage in stages for n in self._files[stage]):
            self._sight(name)

    def outdated(self, stage: str, receipt: Receipt) -> tuple[Outdated, ...]:
        """Return what a result of a stage stood on that is another by now."""
        reads = receipt.reads
        if reads is None and not (self._files[stage] or self._variables[stage]):
            return ()
        if receipt.status == "diverged" and receipt.seconds == 0.0:
            return ()  # it was not computed, for an input of it diverged
        key = id(reads), stage  # siblings share one object
        if key not in self._known:
            self._known[key] = reads, tuple(self._compare(stage, reads or {}))
        return self._known[key][1]

    def _compare(self, stage: str, reads: Mapping[str, Any]) -> Iterator[Outdated]:
        recorded = reads.get("files", {})
        for name, entry in recorded.items():
            yield from self._of_file(name, entry)
        yield from self._undeclared_before(stage, recorded)
        values = reads.get("env", {})
        for name, old in values.items():
            if (new := look(f"{VARIABLE}{name}").digest) != old:
                yield Outdated("variable", name, "has another value", old, new)
        for name in self._variables[stage]:
            if name not in values:
                yield Outdated("variable", name, "declared since")

    def _undeclared_before(
        self, stage: str, recorded: Collection[str]
    ) -> Iterator[Outdated]:
        """Yield files that patterns match since, and patterns that match none."""
        for name in self._files[stage]:
            if name not in recorded:
                text = "matches `files` since"
                yield Outdated("file", name, text, None, self._digest(name))
        for pattern in self._stages[stage].files:
            if pattern not in recorded and not self._matches(pattern):
                yield Outdated("file", pattern, "is matched by none")

    def _of_file(self, name: str, entry: Sequence[Any] | None) -> Iterator[Outdated]:
        stat = self._stat(name)
        if entry is None:
            if stat is not None:
                yield Outdated("file", name, "is there by now", None, "")
            return
        old, *before = entry
        if stat is None:
            yield Outdated("file", name, "is not there any more", old)
        elif old == "":
            yield Outdated("file", name, "changed while it was read")
        elif list(stat) != before and (new := self._digest(name)) != old:
            text = f"content {old[:12]} -> {new[:12]}"
            if name.endswith("/"):
                text = "the names in it changed"
            yield Outdated("file", name, text, old, new)

    def _stat(self, name: str) -> Stat | None:
        if name not in self._stats:
            self._stats[name] = stat_of(path_of(name, self._folder))
        return self._stats[name]

    def _digest(self, name: str) -> str:
        return self._sight(name).digest or ""

    def _sight(self, name: str) -> Sight:
        if name not in self._sights:
            self._sights[name] = look(path_of(name, self._folder), self._stat(name))
        return self._sights[name]

    def _declared(self, stage: Stage) -> tuple[str, ...]:
        """Return the files that the patterns of a stage's `files:` match."""
        paths = (path for pattern in stage.files for path in self._matches(pattern))
        return tuple(dict.fromkeys(map(self._name, paths)))

    def _matches(self, pattern: str) -> list[str]:
        whole = os.path.join(escape(self._folder), os.path.expanduser(pattern))
        return sorted(p for p in glob(whole, recursive=True) if os.path.isfile(p))

    def _name(self, path: str) -> str:
        if path not in self._names:
            self._names[path] = portable_name(path, self._folder)
        return self._names[path]

    def _since_the_plan(self, name: str) -> Sight:
        """Return a declared file; as changing if it is not what the plan had."""
        then = self._sight(name)
        if stat_of(path_of(name, self._folder)) == self._stat(name):
            return then
        now = look(path_of(name, self._folder))
        return now if now.digest == then.digest else Sight(then.stat, CHANGING)

    def _value(self, name: str) -> str:
        """Return the digest of a declared variable; `CHANGING` if it has another."""
        then = self._values[name]
        return then if look(f"{VARIABLE}{name}").digest == then else CHANGING

    def are_declared(self, stages: Iterable[str]) -> bool:
        """Return whether some stage declares files or variables."""
        return any(self._files[name] or self._variables[name] for name in stages)

    def record(
        self, stages: Sequence[str], observed: Observed, apart: Collection[str]
    ) -> dict[str, Any]:
        """Return the field `reads` of a receipt.

        Args:
            stages: that have the result.
            observed: what was seen while it was computed.
            apart: files and folders that count otherwise, or not at all.
        """
        names = [name for stage in stages for name in self._files[stage]]
        within = tuple(f"{path}/" for path in apart)
        seen = {
            self._name(path): sight
            for path, sight in files(observed.sights).items()
            if path not in apart and not path.startswith(within)
        }
        for name in names:
            declared_as = self._since_the_plan(name)
            same = seen.setdefault(name, declared_as).digest == declared_as.digest
            seen[name] = seen[name] if same else Sight(declared_as.stat, CHANGING)
        read = variables(observed.sights)
        declared = {name for stage in stages for name in self._variables[stage]}
        values = {n: self._value(n) for n in declared}
        for name in declared & read.keys():
            values[name] = values[name] if read[name] == values[name] else CHANGING
        return _without_empty(
            {
                "files": {n: _entry(seen[n]) for n in sorted(seen)},
                "env": dict(sorted(values.items())),
                "undeclared": sorted(read.keys() - declared),
                "sources": sources(observed.sights),
                "unseen": list(observed.unseen),
            }
        )


def in_words(reads: Mapping[str, Any] | None) -> Iterator[str]:
    """Word what a result stands on, a line each; nothing for built-in code."""
    reads = reads or {}
    yield from blind_spots(reads)
    for name, entry in reads.get("files", {}).items():
        if entry is None:
            yield f"looked for {name}, which was not there"
        else:
            yield f"read {name}, content {entry[0][:12] or 'changing meanwhile'}"
    for name in reads.get("env", ()):
        yield f"used the variable {name}, whose value counts, as it is declared"
    for name in reads.get("undeclared", ()):
        yield f"used the variable {name}, which is not declared"
    yield from (f"used {name}" for name in reads.get("sources", ()))
    for name in reads.get("loads", ()):
        yield f"loaded {name} by a computed name, or may have: all of it counts"


def blind_spots(reads: Mapping[str, Any] | None) -> Iterator[str]:
    """Word what may have changed unnoticed, a line each."""
    reads = reads or {}
    if reads.get("observed") is False:
        yield "what code of yours read was not recorded"
    for name in reads.get("unseen", ()):
        is_module = " " not in name
        spot = f"what {name} read, for it was imported before" if is_module else name
        yield f"nobody saw {spot}"


def warnings(reads: Mapping[str, Any]) -> list[str]:
    """Word what a result uses that no receipt can hold, with the remedy."""
    lines = [
        f"reads the environment variable {name}, whose change nobody would notice. "
        f"Declare it in the stage, as env: [{name}], or pass it as a parameter."
        for name in reads.get("undeclared", ())
    ]
    return lines + [f"uses {REMEDIES[name]}" for name in reads.get("sources", ())]


_SEED = "so another run may give other results. Draw from a generator made of a seed."
REMEDIES = {
    "numpy.random without a seed": f"numpy.random without a seed, {_SEED}",
    "random without a seed": f"random without a seed, {_SEED}",
    "torch without a seed": f"torch's generator without a seed, {_SEED}",
    "network": "the network, which is not recorded. Keep what it brings in a file.",
    "process": "another process, and what that reads is not seen. Declare the files "
    "in the stage, as files: [...].",
}


def _entry(sight: Sight) -> list[Any] | None:
    return None if sight.stat is None else [sight.digest, *sight.stat]


def _without_empty(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value}


def _no_file(pattern: str) -> tuple[str, str]:
    """Return the fault of a pattern that matches nothing, and the remedy."""
    reason = f"expected a file, or a pattern of some, got '{pattern}', which none has"
    every = f"{pattern.rstrip('/')}/**"
    return reason, (
        "Paths are relative to the study file's folder. A folder is no file: "
        f"'{every}' means all files in one."
    )
