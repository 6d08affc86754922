"""What code computes a node, told from source text.

Followed are functions, classes with their methods and bases, constants, closures,
defaults, decorators, imports wherever they stand and re-exports, within the project;
and what parameters name: see `Kind.loads` and factories. Annotations are not.

Not followed is what no text tells: `getattr` by a computed name, `import_module` of a
computed name outside of `Kind.loads`, methods of objects whose class is never named, a
registry that other modules fill. Such code counts only if something else reaches it. A
function without a source file, as in a notebook, has no fingerprint.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from curvflow.flows.code.entries import Entries
from curvflow.flows.code.loaded import Loaded, carried, loaded, signature
from curvflow.flows.code.names import Names
from curvflow.flows.code.normal import NORMAL_FORM
from curvflow.flows.code.reach import Definitions
from curvflow.flows.code.sources import Sources
from curvflow.flows.graph import Node
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Weights
from curvflow.stores.log import without_collection


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


class Fingerprints:
    """The code of the nodes of a study; files are read once, when first reached."""

    def __init__(self, folder: Path, package: Path | None = None) -> None:
        """Remember where code lies.

        Args:
            folder: the study's; modules beside the study belong to the project.
            package: folder of this package, if not the one that runs.
        """
        self._sources = Sources(folder, package or Path(__file__).parents[2])
        self._entries: dict[frozenset[str], tuple[Entries, Definitions]] = {}
        self._shapes: dict[Hashable, tuple[Loaded, Loaded]] = {}
        self._nodes: dict[Node, tuple[Loaded, Loaded]] = {}
        self._codes: dict[tuple[str, str, Loaded], Code] = {}

    def of(self, node: Node) -> Code:
        """Return the code that computes a node.

        Args:
            node: of the study.

        Returns:
            The code; alike nodes share one object.
        """
        found, _ = self._loaded(node)
        kind = node.kind
        key = kind.name, kind.home, found
        if key not in self._codes:
            with without_collection():  # syntax trees are many objects, and all stay
                self._codes[key] = self._code(kind, found)
        return self._codes[key]

    def _loaded(self, node: Node) -> tuple[Loaded, Loaded]:
        # What runs for a node, and what of it runs for whoever takes its weights.
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = self._combined(node)
        return known

    def _combined(self, node: Node) -> tuple[Loaded, Loaded]:
        shape = signature(node.kind, node.params)
        if shape not in self._shapes:
            kind, params = node.kind, node.params
            self._shapes[shape] = loaded(kind, params), carried(kind, params)
        runs, passed = self._shapes[shape]
        for name, taken in node.inputs.items():
            if issubclass(node.kind.inputs[name].edge, Weights):
                for one in taken:
                    _, network = self._loaded(one.node)
                    runs, passed = runs | network, passed | network
        return runs, passed

    def _code(self, kind: Kind, found: Loaded) -> Code:
        named = (*found.functions, *found.models, *([kind.home] if kind.home else []))
        tops = frozenset(name.partition(":")[0].partition(".")[0] for name in named)
        if tops not in self._entries:
            names = Names(self._sources, tops)
            definitions = Definitions(names)
            self._entries[tops] = Entries(names, definitions), definitions
        entries, definitions = self._entries[tops]
        functions, beside = entries.functions(kind), entries.beside(found)
        if not functions or beside is None:
            return Code()
        paths = definitions.reached(functions, beside)
        digests = {name: definitions.digest(name) for name in sorted(paths)}
        lines = [f"{NORMAL_FORM}", *(f"{n} {d}" for n, d in digests.items())]
        total = sha256("\n".join(lines).encode()).hexdigest()
        return Code(total, digests, paths)
