"""From nodes to the tile that goes to a runner, and how many nodes it holds."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.flows.compute import estimated, load
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Node
from curvflow.flows.jobs import TileJob, tile_job
from curvflow.flows.plan import Plan
from curvflow.flows.tiles import NODE_BY_NODE_WIDTH, width_for
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store


class Orders:
    """Makes the tiles of one run."""

    def __init__(
        self, plan: Plan, store: Store, files: SourceFiles, options: RunOptions
    ) -> None:
        """Prepare to make tiles.

        Args:
            plan: the nodes, and the code that computes them.
            store: holds what they take.
            files: files that parameters name.
            options: how much memory a tile may use.
        """
        self._plan, self._store = plan, store
        self._files, self._options = files, options

    def job(self, nodes: Sequence[Node]) -> TileJob:
        """Return a tile as it travels.

        Args:
            nodes: all of whose inputs are there.

        Returns:
            The tile.

        Raises:
            InputError: a file that parameters name is not what it was.
        """
        # Nodes with equal parameters share one form, and so one reading of the files.
        first = {id(node.form): node for node in nodes}
        files = {
            form: self._files.read(node.params, node.form)
            for form, node in first.items()
        }
        code = [self._plan.codes.of(node).fingerprint for node in nodes]
        return tile_job(self._plan.graph, nodes, files, code)

    def width(self, node: Node, alike: Sequence[Node]) -> int:
        """Return how many nodes fit into the memory that a tile may use.

        Args:
            node: one that can be computed.
            alike: all of its signature.

        Returns:
            The width; data that all of them take are counted once.
        """
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        try:
            (member,) = load(self._store, node.kind, self.job([node]).members)
            whole, data = estimated(node.kind, member)
        # Whatever is wrong with a member, or a model of the user's own, its tile will
        # run into it as well, and tell.
        except Exception:
            return NODE_BY_NODE_WIDTH
        if not _have_one(alike, "data"):
            return width_for(whole, self._options.tile_bytes)
        return width_for(whole - data, self._options.tile_bytes - data)


def _have_one(nodes: Sequence[Node], name: str) -> bool:
    """Return whether nodes take one and the same result as an input."""
    taken = {id(one.node) for node in nodes for one in node.inputs.get(name, ())}
    return len(taken) == 1
