"""Code that differs: from that of results, and from what has been imported.

Drift is changed code under an unchanged version: results were made by other code than
that of today.

Python keeps a module as it was imported, while fingerprints are read from its file. So
before anything is computed, all modules that the nodes reach are imported, and compared
with their files: no file has changed while they were imported; every function of the
user's modules has the code that its file says; and what was reported of an import in an
earlier run of this process is reported again. Edits that nodes do not reach pass, as
do comments and layout once the module has been seen.

Not seen is an edit of constants alone, or of what a module does on import, made between
its import by someone else and the first run of this process; nor one of a module whose
import failed; nor are functions compared that an import hook has rewritten, or this
package's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any
from warnings import catch_warnings, simplefilter

from curvflow.errors import RequestError
from curvflow.flows.graph.graph import Graph, Node, diverged_inputs
from curvflow.flows.plan.code.fingerprints import (
    IMPORTED,
    Code,
    Fingerprints,
    form_of,
    recorded_loads,
)
from curvflow.flows.plan.code.sources import OWN, is_typed
from curvflow.flows.plan.why.cost import Costs, Prediction
from curvflow.flows.reads.windows import importing
from curvflow.schemas.records.receipts import CodeRecord, Receipt
from curvflow.stores.base import Index


class Accepted:
    """Compares the code of results with the code of today."""

    def __init__(self, index: Index, codes: Fingerprints) -> None:
        """Join the fingerprints that settlements call the same."""
        self._index, self._codes = index, codes
        self._comparable: dict[str, bool] = {}
        self._untouched: dict[str, bool] = {}
        self._groups: dict[str, set[str]] = {}
        for settlement in index.settlements:
            for before, after in settlement.pairs:
                joined = {*self.alike(before), *self.alike(after)}
                self._groups.update(dict.fromkeys(joined, joined))

    def alike(self, fingerprint: str) -> Set[str]:
        """Return the fingerprints accepted as equal to the given, itself included."""
        return self._groups.get(fingerprint) or {fingerprint}

    def moved(self, receipt: Receipt, node: Node) -> tuple[str, str] | None:
        """Return the fingerprints then and now of a result whose code has changed.

        None if they mean the same, or cannot be compared: the result was made before
        code was recorded, or in another normal form, or today's code is unknown.
        """
        then = receipt.code
        if not self._is_comparable(then) or self._is_untouched(receipt):
            return None
        now = self._codes.of_result(node, receipt).fingerprint
        if now == "" or now in self.alike(then):
            return None
        return then, now

    def is_known(self, receipt: Receipt, node: Node) -> bool:
        """Return whether a result has known code that means the same as a node's."""
        then = receipt.code
        if not self._is_comparable(then):
            return False
        if self._is_untouched(receipt):
            return True
        now = self._codes.of_result(node, receipt).fingerprint
        return now != "" and now in self.alike(then)

    def _is_comparable(self, then: str) -> bool:
        if then not in self._comparable:  # thousands of nodes share their code
            record = self._index.codes.get(then)
            self._comparable[then] = record is not None and _is_of_today(record)
        return self._comparable[then]

    def _is_untouched(self, receipt: Receipt) -> bool:
        then = receipt.code
        files = self._index.codes[then].files
        if then not in self._untouched:
            self._untouched[then] = bool(files) and self._codes.are_as_before(files)
        if receipt.reads is None or not self._untouched[then]:
            return self._untouched[then]
        # A module that was not there may have come.
        return files.keys() >= {*(recorded_loads(receipt.reads) or ())}


def _is_of_today(record: CodeRecord) -> bool:
    """Return whether code is recorded in the form that it would have today."""
    return record.form == form_of(record.definitions)


@dataclass(frozen=True)
class Move:
    """A definition that has changed.

    Attributes:
        name: `module:function`, `module:Class.method` or `module:NAME`.
        change: `changed`, `added` or `removed`.
        path: the names by which the kind's function reaches it; empty if removed.
    """

    name: str
    change: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        way = [name for name in self.path if not name.endswith(f":{IMPORTED}")]
        names = " > ".join(name.rpartition(":")[2] for name in way)
        by = f" (by {names})" if len(way) > 1 else ""
        return f"{self.name} {self.change}{by}"


@dataclass(frozen=True)
class Drift:
    """Results of one kind whose code has moved under an unchanged version.

    Attributes:
        kind: name of the kind.
        version: as declared, then and now.
        nodes: whose results are concerned.
        pairs: fingerprints then and now, each pair once.
        moves: what has moved.
        cost: predicted time of computing them again.
    """

    kind: str
    version: int
    nodes: Sequence[Node]
    pairs: Sequence[tuple[str, str]]
    moves: Sequence[Move]
    cost: Prediction

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "version": self.version,
            "nodes": len(self.nodes),
            "predicted_seconds": self.cost.seconds,
            "moved": [vars(move) for move in self.moves],
        }


def find_drifts(
    graph: Graph, index: Index, codes: Fingerprints, costs: Costs
) -> list[Drift]:
    """Compare the code of each result with the code that would compute it today.

    Returned are the changes that were not accepted, by kind. Not compared are results
    made before code was recorded, or whose code is unknown; those that diverged inputs
    left uncomputed; and lost ones, which run anyway.
    """
    accepted = Accepted(index, codes)
    moved: dict[str, dict[tuple[str, str], list[Node]]] = {}
    for node in graph:
        if node.receipt is None or not (pair := accepted.moved(node.receipt, node)):
            continue
        is_lost = node.state == "stale" and not node.revive
        is_passed_on = node.receipt.status == "diverged" and diverged_inputs(node)
        if not is_lost and not is_passed_on:
            pairs = moved.setdefault(node.kind.name, {})
            pairs.setdefault(pair, []).append(node)
    return [_drift(pairs, index, accepted, codes, costs) for pairs in moved.values()]


def _drift(
    pairs: Mapping[tuple[str, str], list[Node]],
    index: Index,
    accepted: Accepted,
    codes: Fingerprints,
    costs: Costs,
) -> Drift:
    nodes = [node for several in pairs.values() for node in several]
    moves: dict[str, Move] = {}
    for (then, _), moved in pairs.items():
        # Of accepted code, the nearest shows what is new.
        alike = (
            index.codes.get(fingerprint) for fingerprint in sorted(accepted.alike(then))
        )
        records = [record for record in alike if record and _is_of_today(record)]
        now = codes.of_result(moved[0], moved[0].receipt)
        nearest = min((_moves(record, now) for record in records), key=len)
        moves |= {move.name: move for move in nearest if move.name not in moves}
    kind = nodes[0].kind
    return Drift(
        kind.name,
        kind.version,
        nodes,
        list(pairs),
        sorted(moves.values(), key=_from_the_top),
        costs.predicted(nodes),
    )


def _from_the_top(move: Move) -> tuple[bool, int, str]:
    # A removed definition is understood by its user, so it comes last.
    return not move.path, len(move.path), move.name


def _moves(then: CodeRecord, now: Code) -> list[Move]:
    moves = []
    for name in then.definitions.keys() | now.definitions.keys():
        before, after = then.definitions.get(name), now.definitions.get(name)
        if before != after:
            change = "changed" if before and after else "added" if after else "removed"
            moves.append(Move(name, change, now.paths.get(name, ())))
    return moves


Codes = Mapping[str, list[CodeType]]


@dataclass
class _Seen:
    """The definitions read of one import of a module.

    Attributes:
        spec: of the import; a reload makes another.
        digest: of the file.
        definitions: names and digests, as long as the file has that digest.
    """

    spec: object
    digest: str
    definitions: set[tuple[str, str]] = field(default_factory=set)


_seen: dict[str, _Seen] = {}  # an import lasts as long as the process


def import_code(codes: Fingerprints, nodes: Iterable[Node]) -> None:
    """Import the modules that nodes reach, and compare them with their fingerprints.

    Raises:
        RequestError: a file has changed since its module was imported.
    """
    read: dict[str, set[tuple[str, str]]] = {}
    for code in {id(code): code for code in map(codes.of, nodes)}.values():
        for name, digest in code.definitions.items():
            read.setdefault(name.partition(":")[0], set()).add((name, digest))
    for name in read:
        _import(name)
    # Typed modules have no file, and were read as they are now. One of Python's own has
    # none either, and is imported in place of a file of its name, such as time.py.
    theirs = {
        name: sys.modules[name]
        for name in read
        if name.partition(".")[0] != OWN
        and getattr(sys.modules.get(name), "__file__", None)
        and not is_typed(name)
    }
    files = codes.files()
    changed = [*_other_functions(theirs), *codes.changed()] or [
        n for n, module in theirs.items() if not _as_seen(module, files[n], read[n])
    ]
    if changed:
        raise RequestError(
            f"{changed[0]}: expected the code that was imported, got a file that has "
            "changed since. Restart Python, or reload the module."
        )


def _import(name: str) -> None:
    if name not in sys.modules:
        # The node that needs it fails the same way, and reports it.
        is_theirs = name.partition(".")[0] != OWN
        with suppress(Exception), importing(is_likely=is_theirs):
            import_module(name)


def _as_seen(
    module: ModuleType, digest: str, definitions: set[tuple[str, str]]
) -> bool:
    spec = module.__spec__ or module
    seen = _seen.get(module.__name__)
    if seen is None or seen.spec is not spec:
        seen = _seen[module.__name__] = _Seen(spec, digest)
    if seen.digest == digest:
        seen.definitions |= definitions
    return definitions <= seen.definitions


def _other_functions(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """Name the modules of functions that have other code than their file says."""
    files = {str(module.__file__): _in_file(module) for module in modules.values()}
    for module in modules.values():
        for function in _functions(module, modules):
            code = function.__code__
            written = files.get(code.co_filename, {}).get(code.co_qualname, [])
            # A function that the file has no more is reached by no name in it.
            if written and _bare(code) not in written:
                yield function.__module__


def _functions(
    holder: ModuleType | type, modules: Mapping[str, ModuleType]
) -> Iterator[FunctionType]:
    for value in list(vars(holder).values()):
        if isinstance(value, type):
            if value.__module__ in modules and value is not holder:
                yield from _functions(value, modules)
        else:
            yield from _beneath(value)


def _beneath(value: object) -> Iterator[FunctionType]:
    """Find the function that decorators, properties and the like stand before."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while value is not None:
        if isinstance(value, FunctionType):
            yield value
        value = getattr(value, "__dict__", {}).get("__wrapped__")


def _in_file(module: ModuleType) -> Codes:
    """Compile a module's file as it is; return the code of its functions by name."""
    by_name: dict[str, list[CodeType]] = {}
    loader = getattr(module, "__loader__", None)
    if type(loader) is SourceFileLoader:
        with suppress(OSError, SyntaxError), catch_warnings():
            simplefilter("ignore")  # the import has warned
            data = loader.get_data(str(module.__file__))
            pending = [compile(data, str(module.__file__), "exec", dont_inherit=True)]
            while pending:
                inner = [c for c in pending.pop().co_consts if isinstance(c, CodeType)]
                pending += inner
                for code in inner:
                    by_name.setdefault(code.co_qualname, []).append(_bare(code))
    return by_name


def _bare(code: CodeType) -> CodeType:
    """Return code without the place where it stands."""
    inner = [_bare(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    if "__firstlineno__" in code.co_names:  # of a class, from Python 3.13 on
        inner = [0 if c == code.co_firstlineno else c for c in inner]
    return code.replace(
        co_filename="", co_firstlineno=1, co_linetable=b"", co_consts=tuple(inner)
    )
