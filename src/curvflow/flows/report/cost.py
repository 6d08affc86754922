"""What the results took, and where they were computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.stages import MOST_NODES, Reader
from curvflow.flows.results.node_results import View
from curvflow.schemas.options import RunOptions
from curvflow.schemas.words import counted, duration

# What kinds count of their own work, by the variable's name.
WORK = {
    "num_gradients": "gradients",
    "num_matvecs": "products",
    "gradient_equivalents": "full-gradient equivalents",
}


@dataclass(frozen=True)
class StageCost:
    """One stage's cost.

    Attributes:
        stage: its name.
        kind: name of its kind.
        nodes: results of it, those that are equal once.
        executed: how many of them the run told of has computed.
        seconds: sum over the results of their shares of tiles' times.
        share: of all seconds, from 0 to 1.
        work: gradients or products, summed; empty if not counted or too many to read.
        devices: where they were computed.
    """

    stage: str
    kind: str
    nodes: int
    executed: int
    seconds: float
    share: float
    work: str
    devices: str


@dataclass(frozen=True)
class Cost:
    """The cost of all results, and of the run told of."""

    stages: Sequence[StageCost]
    seconds: float
    executed: int
    reused: int

    @property
    def told(self) -> str:
        """Seconds in words."""
        return duration(self.seconds)


def cost(basis: Basis, reader: Reader) -> Cost:
    """Sum up what the results took.

    Args:
        basis: what the page is drawn from.
        reader: reads what nodes count of their work.

    Returns:
        Seconds and work by stage. A result that several stages share counts in the
        first of them.
    """
    seen: set[str] = set()
    found = []
    counts = basis.run.counts if basis.run else {}
    for view in basis.views:
        own = {one.key: one for one in view.receipts if one and one.key not in seen}
        seen |= own.keys()
        devices = Counter(one.device for one in own.values())
        found.append(
            StageCost(
                view.stage,
                view.use,
                len(own),
                counts.get("executed", {}).get(view.stage, 0),
                sum(one.seconds for one in own.values()),
                0.0,
                _work(view, reader),
                ", ".join(devices),
            )
        )
    total = sum(one.seconds for one in found)
    shared = [_with_share(one, total) for one in found]
    return Cost(shared, total, *(_sum(counts, name) for name in ("executed", "cached")))


def _with_share(one: StageCost, total: float) -> StageCost:
    return StageCost(**{**vars(one), "share": one.seconds / total if total else 0.0})


def _sum(counts: Mapping[str, Mapping[str, int]], name: str) -> int:
    return sum(counts.get(name, {}).values())


def _work(view: View, reader: Reader) -> str:
    kind = kind_of(view)
    names = [n for n in WORK if kind and (v := kind.output(n)) and not v.dims]
    there = [number for number, one in enumerate(view.receipts) if one]
    if not names or not there:
        return ""
    if len(there) > MOST_NODES:
        return "too many nodes to sum"
    sums: Counter[str] = Counter()
    for _, record in reader.records(view, there, names):
        sums.update({name: record[name] for name in names if name in record})
    return ", ".join(f"{sums[name]:,.6g} {WORK[name]}" for name in names)


NAMES = {"python": "Python", "platform": "platform"}
UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Environment:
    """What the results shown were computed with.

    Attributes:
        runs: per column the runs of one environment, and how many results are theirs.
        rows: name of a library or of the platform, and its version per column.
        devices: results by device, in words.
        options: knobs of the run told of that are not the default, in words.
        drifts: kinds whose code has changed since, and how many results are concerned.
        plan: command that says which code that is.
    """

    runs: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    devices: str
    options: str
    drifts: Sequence[tuple[str, int]]
    plan: str

    @property
    def is_one(self) -> bool:
        """Whether all results come from equal environments."""
        return len(self.runs) < 2

    def short(self) -> str:
        """Return the versions that matter most, on one line."""
        wanted = ("curvflow", "Python", "torch")
        own = {name: cells[0] for name, cells in self.rows if cells}
        return ", ".join(f"{name} {own[name]}" for name in wanted if name in own)


def environment(basis: Basis) -> Environment:
    """Find the environments of the runs whose results are shown.

    Args:
        basis: what the page is drawn from.

    Returns:
        One column per environment that is different.
    """
    results: Counter[int] = Counter()
    devices: Counter[str] = Counter()
    for receipt in basis.receipts():
        run = basis.run_of(receipt)
        results[run.begun if run else 0] += 1
        devices[receipt.device] += 1
    by_number = {run.begun: run for run in basis.index.runs}
    columns: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for begun in sorted(results):
        run = by_number.get(begun)
        found = tuple(run.environment.items()) if run else ()
        columns.setdefault(found, []).append(begun)
    names = list(dict.fromkeys(name for found in columns for name, _ in found))
    told = [(name, [dict(c).get(name, UNKNOWN) for c in columns]) for name in names]
    return Environment(
        [_runs(basis, group, results) for group in columns.values()],
        [(NAMES.get(name, name), cells) for name, cells in told],
        ", ".join(f"{n:,} on {device}" for device, n in devices.most_common()),
        _options(basis.run.options if basis.run else {}),
        basis.drifts,
        basis.asked.command("plan", of_run=False),
    )


def _runs(basis: Basis, begun: Sequence[int], results: Mapping[int, int]) -> str:
    own = {run.begun: run for run in basis.index.runs}
    told = [
        f"run {own[one].number}"
        + ("" if own[one].study == basis.name else f" of {own[one].study}")
        if one in own
        else "unknown run"
        for one in begun
    ]
    many = f"{', '.join(told[:3])} and {len(told) - 3} more"
    number = sum(results[one] for one in begun)
    return f"{many if len(told) > 3 else ', '.join(told)}: {counted(number, 'result')}"


def _options(options: Mapping[str, Any]) -> str:
    usual = {name: info.default for name, info in RunOptions.model_fields.items()}
    # Addresses of clusters are nobody else's business.
    told = [
        f"{name} {value}"
        for name, value in options.items()
        if name not in ("scheduler", "cluster") and value != usual.get(name)
    ]
    return ", ".join(told)
