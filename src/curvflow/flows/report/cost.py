"""Cost and environment: seconds, work, devices, versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.stages import MOST_NODES, Reader
from curvflow.flows.results.node_results import View
from curvflow.flows.results.run_facts import total_of
from curvflow.schemas.options import RunOptions
from curvflow.schemas.words import counted, duration

# Units of work, by the variable in which kinds count it.
WORK = {
    "num_gradients": "gradients",
    "num_matvecs": "products",
    "gradient_equivalents": "full-gradient equivalents",
    "num_backward": "passes back over the data",
}


@dataclass(frozen=True)
class StageCost:
    """One stage's cost.

    Attributes:
        stage: its name.
        kind: name of its kind.
        nodes: its results; equal ones count once.
        executed: number of them computed by the run reported.
        seconds: sum of the results' shares of their tiles' times.
        share: of all seconds, from 0 to 1.
        work: gradients or products, summed; empty if not counted or too many to read.
        devices: that computed them.
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
    """The cost of all results, and of the run reported."""

    stages: Sequence[StageCost]
    seconds: float
    executed: int
    reused: int

    @property
    def duration(self) -> str:
        """Return the seconds in words."""
        return duration(self.seconds)


def cost(basis: Basis, reader: Reader) -> Cost:
    """Sum seconds and work by stage; a shared result counts in its first stage."""
    seen: set[str] = set()
    stages = []
    counts = basis.run.counts if basis.run else {}
    for view in basis.views:
        receipts = {
            entry.key: entry
            for entry in view.receipts
            if entry and entry.key not in seen
        }
        seen |= receipts.keys()
        devices = Counter(entry.device for entry in receipts.values())
        stages.append(
            StageCost(
                view.stage,
                view.use,
                len(receipts),
                counts.get("executed", {}).get(view.stage, 0),
                sum(entry.seconds for entry in receipts.values()),
                0.0,
                _work(view, reader),
                ", ".join(devices),
            )
        )
    total = sum(entry.seconds for entry in stages)
    shared = [_with_share(entry, total) for entry in stages]
    return Cost(
        shared, total, *(total_of(counts, name) for name in ("executed", "cached"))
    )


def _with_share(stage: StageCost, total: float) -> StageCost:
    return StageCost(
        **{**vars(stage), "share": stage.seconds / total if total else 0.0}
    )


def _work(view: View, reader: Reader) -> str:
    kind = kind_of(view)
    names = [name for name in WORK if kind and (v := kind.output(name)) and not v.dims]
    there = [number for number, receipt in enumerate(view.receipts) if receipt]
    if not names or not there:
        return ""
    if len(there) > MOST_NODES:
        return "too many nodes to sum"
    sums: Counter[str] = Counter()
    for _, record in reader.records(view, there, names):
        sums.update({name: record[name] for name in names if name in record})
    done = [name for name in names if sums[name]] or names[:1]
    return ", ".join(f"{sums[name]:,.6g} {WORK[name]}" for name in done)


NAMES = {"python": "Python", "platform": "platform"}
UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Environment:
    """Versions, devices and options that the results were computed with.

    Attributes:
        runs: per column the runs of one environment, and their number of results.
        rows: name of a library or of the platform, and its version per column.
        devices: results by device, in words.
        options: non-default options of the run reported, in words.
        drifts: kinds whose code has changed since, with numbers of results.
        plan: command that shows the changes.
    """

    runs: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    devices: str
    options: str
    drifts: Sequence[tuple[str, int]]
    plan: str

    @property
    def is_uniform(self) -> bool:
        """Return whether all results come from equal environments."""
        return len(self.runs) < 2

    def short(self) -> str:
        """Return the most important versions, on one line."""
        names = ("curvflow", "Python", "torch")
        versions = {name: cells[0] for name, cells in self.rows if cells}
        return ", ".join(
            f"{name} {versions[name]}" for name in names if name in versions
        )


def environment(basis: Basis) -> Environment:
    """Return the environments of the runs whose results are shown, one a column."""
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
        versions = tuple(run.environment.items()) if run else ()
        columns.setdefault(versions, []).append(begun)
    names = list(dict.fromkeys(name for versions in columns for name, _ in versions))
    rows = [(name, [dict(c).get(name, UNKNOWN) for c in columns]) for name in names]
    return Environment(
        [_runs(basis, group, results) for group in columns.values()],
        [(NAMES.get(name, name), cells) for name, cells in rows],
        ", ".join(f"{n:,} on {device}" for device, n in devices.most_common()),
        _options(basis.run.options if basis.run else {}),
        basis.drifts,
        basis.request.command("plan", of_run=False),
    )


def _runs(basis: Basis, begun: Sequence[int], results: Mapping[int, int]) -> str:
    runs = {run.begun: run for run in basis.index.runs}
    names = [
        f"run {runs[number].number}"
        + ("" if runs[number].study == basis.name else f" of {runs[number].study}")
        if number in runs
        else "unknown run"
        for number in begun
    ]
    many = f"{', '.join(names[:3])} and {len(names) - 3} more"
    total = sum(results[number] for number in begun)
    return f"{many if len(names) > 3 else ', '.join(names)}: {counted(total, 'result')}"


def _options(options: Mapping[str, Any]) -> str:
    defaults = {name: info.default for name, info in RunOptions.model_fields.items()}
    # Addresses of clusters are private.
    changed = [
        f"{name} {value}"
        for name, value in options.items()
        if name not in ("scheduler", "cluster") and value != defaults.get(name)
    ]
    return ", ".join(changed)
