"""The origin of each number: node, digest, run and seeds."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from curvflow.flows.report.basis import Basis, compact, name_of
from curvflow.flows.results.node_results import View
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt

DIGEST = 12  # characters of a digest shown


@dataclass(frozen=True)
class Origin:
    """The node that a number belongs to, in words.

    Attributes:
        node: its name, such as `fit[seed=0]`.
        kind: its name and version.
        digest: the first characters of its content hash.
        run: number of the run that computed it.
        seeds: its labels and parameters that are seeds.
        cost: seconds and device.
        state: empty for an ordinary result; else its status and the reason.
    """

    node: str
    kind: str = ""
    digest: str = ""
    run: str = ""
    seeds: str = ""
    cost: str = ""
    state: str = ""


class Origins:
    """The origins of the numbers on one page, each listed once."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._numbers: dict[tuple[str, tuple[Label, ...]], int] = {}
        self._origins: list[Origin] = []

    def number(self, view: View, node: int) -> int:
        """Return the number of a node's origin, which is added at its first use."""
        address = view.stage, tuple(view.points[node])
        if address not in self._numbers:
            self._numbers[address] = len(self._origins)
            self._origins.append(self._origin(view, node))
        return self._numbers[address]

    def as_json(self) -> list[tuple[str, ...]]:
        """Return all origins, with the fields in the order of `Origin`."""
        return [astuple(origin) for origin in self._origins]

    def _origin(self, view: View, node: int) -> Origin:
        name = name_of(view, node)
        receipt, status = view.receipts[node], view.status(node)
        if receipt is None:
            reason = self._basis.error(view, node)
            return Origin(name, view.use, state=_state(status, reason))
        run = self._basis.run_of(receipt)
        number = "" if run is None else f"{run.number}"
        if run is not None and run.study != self._basis.name:
            number = f"{run.number} of {run.study}"
        return Origin(
            name,
            f"{receipt.kind}, version {receipt.version}",
            receipt.digest[:DIGEST],
            number,
            _seeds(view, node, receipt),
            f"{receipt.seconds:.3g} s on {receipt.device}",
            "" if status == "ok" else _state(status, receipt.reason),
        )


def _state(status: str, reason: str) -> str:
    return f"{status}: {reason}" if reason else status


def _seeds(view: View, node: int, receipt: Receipt) -> str:
    labels = view.coords(node).items()
    seeds = {axis: label for axis, label in labels if "seed" in axis}
    several = _reduced(receipt) | {axis: [label] for axis, label in seeds.items()}
    parts = [f"{axis} {compact(values)}" for axis, values in several.items()]
    seed = receipt.params.get("seed")
    if seed is not None and seed not in seeds.values():
        parts.append(f"of the stage {seed}")
    return "; ".join(parts)


def _reduced(receipt: Receipt) -> dict[str, list[Any]]:
    """Return the seeds over which a node reduces, by axis."""
    labels_by_axis: dict[str, dict[Any, None]] = {}
    for taken in receipt.inputs.values():
        if isinstance(taken, str):
            continue
        for _, coords, *_ in taken:
            for axis, label in coords.items():
                if "seed" in axis:
                    labels_by_axis.setdefault(axis, {})[label] = None
    return {axis: list(labels) for axis, labels in labels_by_axis.items()}
