"""Fingerprints of the code that computes a node, from source text.

Followed are functions, classes with their methods and bases, constants, closures,
defaults, decorators, imports wherever they stand and re-exports, within the project;
and what parameters name: see `Kind.loads` and factories. Annotations are not.

Not followed is what no text tells: `getattr` by a computed name, `import_module` of a
computed name outside of `Kind.loads`, methods of objects whose class is never named, a
registry that other modules fill. Such code counts only if something else reaches it. A
function without source, as of `exec`, has no fingerprint; that of a notebook has: see
`cells`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from curvflow.flows.graph.graph import Node
from curvflow.flows.plan.code.loaded import Loaded, carried, loaded, signature
from curvflow.flows.plan.code.names import Names
from curvflow.flows.plan.code.normal import NORMAL_FORM
from curvflow.flows.plan.code.reach import Definitions, Entries
from curvflow.flows.plan.code.sources import OWN, Sources
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Trajectory, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import CodeRecord
from curvflow.stores.log import paused_gc


@dataclass(frozen=True)
class Code:
    """The code that computes a node.

    Attributes:
        fingerprint: 64 hexadecimal digits over the number of the normal form and all
            definitions; empty if it cannot be told, and is not to be compared.
        definitions: `module:function`, `module:Class`, `module:Class.method` or
            `module:NAME` to 16 digits over its normal form.
        paths: per definition a shortest way to it from the kind's function, by names.
    """

    fingerprint: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Runs:
    """The functions that run for nodes that are alike.

    Attributes:
        all: what their parameters name.
        passed: what of it runs for whoever takes their weights.
        code: of the nodes, once asked for.
    """

    all: Loaded
    passed: Loaded
    code: Code | None = None


class Fingerprints:
    """The code of the nodes of a study; files are read once, when first reached."""

    def __init__(self, folder: Path, package: Path | None = None) -> None:
        """Read modules of the study's folder and of this package, or a copy of it."""
        self._sources = Sources(folder, package or Path(__file__).parents[3])
        self._library = Definitions(Names(self._sources, frozenset()))
        self._projects: dict[frozenset[str], tuple[Entries, Definitions]] = {}
        # Per node, and for what alike nodes share, so that 100,000 of them cost little;
        # what is looked up by its id is held by the entry.
        self._nodes: dict[Node, _Runs] = {}
        self._shapes: dict[Hashable, _Runs] = {}
        self._of_params: dict[int, tuple[Params, _Runs]] = {}
        self._with: dict[tuple[int, int], tuple[_Runs, _Runs, _Runs]] = {}

    def of(self, node: Node) -> Code:
        """Return the code that computes a node; alike nodes share one object."""
        runs = self._runs(node)
        if runs.code is None:
            with paused_gc():  # syntax trees are many objects, and all stay
                runs.code = self._code(node.kind, runs.all)
        return runs.code

    def read(self, nodes: Iterable[Node]) -> None:
        """Read the code of nodes now, so that later edits do not count."""
        for node in nodes:
            self.of(node)

    def functions(self, node: Node) -> frozenset[str]:
        """Return the functions that a node's own parameters name."""
        return self._by_params(node).all.functions

    def record(self, node: Node) -> CodeRecord:
        """Return the record of a node's code, for the log."""
        code, kind = self.of(node), node.kind
        read = self._sources.read()
        return CodeRecord(kind.name, kind.version, NORMAL_FORM, code.definitions, read)

    def files(self) -> Mapping[str, str]:
        """Return the digest of each module read so far; empty without a file."""
        return self._sources.read()

    def changed(self) -> list[str]:
        """Return the modules read so far whose files are not as they were."""
        return self._sources.changed()

    def are_as_before(self, files: Mapping[str, str]) -> bool:
        """Return whether modules still have the digests that a record gives.

        Then all code that was told from them is what it was, and none needs parsing.
        """
        return all(self._sources.digest(name) == old for name, old in files.items())

    def _runs(self, node: Node) -> _Runs:
        runs = self._nodes.get(node)
        if runs is None:
            runs = self._by_params(node)
            for name, taken in node.inputs.items():
                if issubclass(node.kind.inputs[name].edge, Weights | Trajectory):
                    for result in taken:
                        runs = self._beside(runs, self._runs(result.node))
            self._nodes[node] = runs
        return runs

    def _by_params(self, node: Node) -> _Runs:
        kind, params = node.kind, node.params
        known = self._of_params.get(id(params))
        if known is None:
            shape = signature(kind, params)
            if shape not in self._shapes:
                runs = _Runs(loaded(kind, params), carried(kind, params))
                self._shapes[shape] = runs
            known = self._of_params[id(params)] = params, self._shapes[shape]
        return known[1]

    def _beside(self, runs: _Runs, network: _Runs) -> _Runs:
        key = id(runs), id(network)
        if key not in self._with:
            passed = network.passed
            both = _Runs(runs.all | passed, runs.passed | passed)
            self._with[key] = both, runs, network
        return self._with[key][0]

    def _code(self, kind: Kind, code: Loaded) -> Code:
        named = (*code.functions, *code.models, *([kind.home] if kind.home else []))
        tops = frozenset(name.partition(":")[0].partition(".")[0] for name in named)
        tops -= {OWN}
        if tops not in self._projects:
            names = Names(self._sources, tops)
            definitions = Definitions(names, self._library)
            self._projects[tops] = Entries(names, definitions), definitions
        entries, definitions = self._projects[tops]
        functions, beside = entries.functions(kind), entries.beside(code)
        if not functions or beside is None:
            return Code()
        paths = definitions.reached(functions, beside)
        digests = {name: definitions.digest(name) for name in sorted(paths)}
        lines = [f"{NORMAL_FORM}", *(f"{n} {d}" for n, d in digests.items())]
        total = sha256("\n".join(lines).encode()).hexdigest()
        return Code(total, digests, paths)
