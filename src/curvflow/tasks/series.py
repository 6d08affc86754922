"""The series of a scatter plot: what is drawn against what, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from curvflow.schemas.kind import STAGE
from curvflow.schemas.kinds.figures.scatter import ScatterParams
from curvflow.schemas.nodes import NodeData
from curvflow.tasks import captions
from curvflow.tasks.measurements import Measured, find_measured
from curvflow.tasks.scattered import MINUS, is_turned


@dataclass(frozen=True)
class Series:
    """One variable against another.

    Attributes:
        x: drawn to the right.
        y: drawn upwards.
    """

    x: Measured
    y: Measured

    def named(self, role: str, params: ScatterParams) -> str:
        """Return what an axis says of this series.

        Args:
            role: `x` or `y`.
            params: whether both are normalised.

        Returns:
            Such as `norm l2 (parameter)`, or `1 - test loss / largest`.
        """
        one = self.x if role == "x" else self.y
        if params.normalise == "none":
            return captions.axis_label(one)
        words = f"{captions.quantity(one)[0]} / largest"
        turned = role == "y" and is_turned(self.y.stage, params)
        return f"1 {MINUS} {words}" if turned else words


def find_series(params: ScatterParams, nodes: Sequence[NodeData]) -> list[Series]:
    """Find x and y among the results of stages.

    Args:
        params: the variables, and whether stages are told apart.
        nodes: results of one or several stages.

    Returns:
        One series; where stages are told apart, one for each of them.

    Raises:
        InputError: a variable is not measured, or by several stages of one series.
    """
    if STAGE not in params.parts:
        return [_series(params, nodes, "")]
    stages: dict[str, list[NodeData]] = {}
    for node in nodes:
        stages.setdefault(node.stage, []).append(node)
    return [_series(params, own, stage) for stage, own in stages.items()]


def _series(params: ScatterParams, nodes: Iterable[NodeData], stage: str) -> Series:
    names = {"x": params.x, "y": params.y}
    chosen = {r: n if isinstance(n, str) else n[stage] for r, n in names.items()}
    of = [*nodes]
    return Series(*(find_measured(role, name, of) for role, name in chosen.items()))


def series_sentences(of: Sequence[Series], params: ScatterParams) -> list[str]:
    """Say which stage is drawn as what, where they differ.

    Args:
        of: the series.
        params: how they are drawn.

    Returns:
        A sentence for each axis on which stages differ.
    """
    found = []
    for role in ("x", "y"):
        stages: dict[str, list[str]] = {}
        for one in of:
            stages.setdefault(one.named(role, params), []).append(one.y.stage)
        if len(stages) > 1:
            found.append(f"{role}: {_listed(stages)}.")
    return found


def _listed(stages: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{words} of {', '.join(own)}" for words, own in stages.items())
