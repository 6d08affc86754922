"""The differences that a forest plot draws, read from tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.figures.forest import ForestParams
from curvflow.schemas.nodes import Label, NodeData
from curvflow.schemas.variables import Variable
from curvflow.tasks.measurements import Measured

MINUS = "\u2212"


@dataclass(frozen=True)
class Shown:
    """One row of a comparison.

    Attributes:
        name: what is compared, such as `adam - sgd, width = 8`.
        panel: the variable.
        units: of it.
        label: told by colour; empty without.
        mean: difference.
        low: lower end.
        high: upper end.
        p: corrected.
        count: pairs.
        paired: whether there are pairs.
        diverged: left out.
        nonfinite: left out.
        missing: left out.
        unconverged: pairs, or values, with another verdict than converged.
        settings: those that differ among the estimates compared; empty if none do.
    """

    name: str
    panel: str
    units: str
    label: Label
    mean: float
    low: float
    high: float
    p: float
    count: int
    paired: bool
    diverged: int
    nonfinite: int
    missing: int
    unconverged: int
    settings: str

    @property
    def left_out(self) -> int:
        """Pairs or nodes that are in no difference."""
        return self.diverged + self.nonfinite + self.missing

    @property
    def whole(self) -> str:
        """Name of the row among those of all panels."""
        return f"{self.panel}: {self.name}"

    def measured(self) -> Measured:
        """Return the variable, for its words and units."""
        return Measured(Variable(self.panel, "", units=self.units), [])


def shown(nodes: Sequence[NodeData], params: ForestParams) -> list[Shown]:
    """Read the rows of comparisons.

    Args:
        nodes: tables of `aggregate.compare`.
        params: which rows, intervals and p.

    Returns:
        The rows, panel by panel, in the order of the tables.

    Raises:
        InputError: the tables compare no such variable, or have no axis of that name.
    """
    varying = {
        axis
        for node in nodes
        for axis in node.coords
        if len({str(other.coords.get(axis)) for other in nodes}) > 1
    }
    if params.label is not None and params.label not in nodes[0].coords:
        raise InputError(
            f"label: expected an axis of {nodes[0].stage}, got '{params.label}'. "
            f"{nearest(params.label, nodes[0].coords) or 'It has none.'}"
        )
    several = len({node.stage for node in nodes}) > 1
    every = [
        row for node in nodes for row in _rows(node, params, varying, several=several)
    ]
    panels = list(dict.fromkeys(row.panel for row in every))
    for name in params.quantities or ():
        if name not in panels:
            raise InputError(
                f"quantities: expected a variable compared, got '{name}'. "
                f"{nearest(name, panels)}"
            )
    wanted = params.quantities or panels
    return [row for panel in wanted for row in every if row.panel == panel]


def _rows(
    node: NodeData, params: ForestParams, varying: set[str], *, several: bool
) -> Iterator[Shown]:
    if node.status == "diverged":
        return
    kind = "bootstrap_" if params.interval == "bootstrap" else ""
    behind = [
        f"{axis} = {label}" for axis, label in node.coords.items() if axis in varying
    ]
    if several:
        behind.append(node.stage)
    for row, quantity in enumerate(node["quantity"].tolist()):
        panel, _, rest = quantity.partition(": ")
        name = rest.replace(" - ", f" {MINUS} ", 1).replace("=", " = ")
        yield Shown(
            ", ".join([name, *behind]),
            panel,
            str(node["units"][row]),
            "" if params.label is None else node.coords[params.label],
            float(node["mean"][row]),
            float(node[f"{kind}low"][row]),
            float(node[f"{kind}high"][row]),
            np.nan
            if params.test == "none"
            else float(node[f"p_{params.test}_holm"][row]),
            int(node["count"][row]),
            bool(node["above"][row] >= 0),
            int(node["diverged"][row]),
            int(node["nonfinite"][row]),
            int(node["missing"][row]),
            int(node["unconverged"][row]) if "unconverged" in node else 0,
            str(node[DIFFERING][row]) if DIFFERING in node else "",
        )
