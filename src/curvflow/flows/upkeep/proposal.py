"""What a collection would remove from a store, and why; nothing is touched."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.upkeep.roots import Roots, find_roots
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index, Store
from curvflow.stores.trash import Item

KEEP_RUNS = 5
GRACE = 3600.0
# Between beginning and first sign of life, or between writing and renaming.
LEAST_GRACE = 60.0
# What an interrupted run has so far of a long tile: its next run goes on from there.
PARTIAL_GRACE = 7 * 24 * 3600.0

UNNAMED = "no kept run names it"
STRUCK = "struck off"
ORPHAN = "orphan: no result is in it"
AGAIN = "collected before, still there"
ASKED = "dropped as asked"


@dataclass(frozen=True)
class Doomed:
    """A payload that is to go.

    Attributes:
        item: where it is.
        reason: why it goes.
        study: that computed it; empty if it is not known.
        stage: that computed it; empty for an orphan.
        kind: of that stage.
        seconds: that computing its live results again would take.
    """

    item: Item
    reason: str
    study: str = ""
    stage: str = ""
    kind: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Proposal:
    """What is to go, and what stays.

    Attributes:
        index: the log it was made of.
        roots: what is left alone.
        doomed: payloads that are to be moved to the trash.
        wanted: payloads in the trash that are needed after all.
        held: numbers of payloads of kinds to be dropped that stay, by kind and holder.
        leftovers: by what they are, files that go for good.
        staying: bytes of what stays: `payloads`, and what is in `quarantine`.
    """

    index: Index
    roots: Roots
    doomed: Sequence[Doomed] = ()
    wanted: Sequence[Item] = ()
    held: Mapping[tuple[str, str], int] = field(default_factory=dict)
    leftovers: Mapping[str, Sequence[Item]] = field(default_factory=dict)
    staying: Mapping[str, int] = field(default_factory=dict)

    @property
    def blocked(self) -> str:
        """Why nothing is collected at all; empty if something may be."""
        run = self.roots.unknown
        if run is None:
            return ""
        return (
            f"run {run.number} of {run.study} may be at work and has not said what "
            "it takes"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the proposal in the form of `curvflow gc --json`."""
        doomed = self.doomed
        return {
            "blocked": self.blocked or None,
            "groups": grouped(doomed),
            "payloads": len(doomed),
            "bytes": sum(one.item.bytes for one in doomed),
            "seconds": round(sum(one.seconds for one in doomed), 3),
            "held": [
                {"kind": kind, "payloads": number, "by": holder}
                for (kind, holder), number in self.held.items()
            ],
            "leftovers": {
                what: {"files": len(some), "bytes": sum(item.bytes for item in some)}
                for what, some in self.leftovers.items()
            },
            "staying": dict(self.staying),
            "live_runs": [
                {"study": run.study, "run": run.number} for run in self.roots.live
            ],
        }


def grouped(doomed: Sequence[Doomed]) -> list[dict[str, Any]]:
    """Count payloads, bytes and seconds by study, stage, kind and reason.

    Args:
        doomed: payloads.

    Returns:
        A record per group, the largest first.
    """
    groups: dict[tuple[str, ...], list[Doomed]] = defaultdict(list)
    for one in doomed:
        groups[one.study, one.stage, one.kind, one.reason].append(one)
    records = [
        dict(zip(("study", "stage", "kind", "reason"), names, strict=True))
        | {
            "payloads": len(some),
            "bytes": sum(one.item.bytes for one in some),
            "seconds": round(sum(one.seconds for one in some), 3),
        }
        for names, some in groups.items()
    ]
    return sorted(records, key=lambda record: -int(record["bytes"]))


def propose(
    store: Store,
    *,
    keep_runs: int = KEEP_RUNS,
    drop: Collection[str] = (),
    grace: float = GRACE,
) -> Proposal:
    """Propose what a collection would remove.

    Args:
        store: all studies in it.
        keep_runs: number of finished runs to keep per study.
        drop: kinds whose payloads go although kept runs name them; those of pinned
            runs and of runs at work stay.
        grace: seconds, by the store's clock, that unfinished files and payloads
            without results are given; a minute at least.

    Returns:
        The proposal; empty but for the reason if a run is at work of which it is not
        known what it takes.

    Raises:
        UnknownNameError: the store holds no results of a kind to be dropped.
        StoreError: the store cannot be read.
    """
    grace = max(grace, LEAST_GRACE)
    now = store.files.clock()
    # Listed before the log is read: what a run that is over by then has made is in it,
    # and what one that is still at work makes is younger than its beginning.
    payloads = store.files.items("payloads")
    trash = store.files.items("trash")
    index = store.index()
    _check_kinds(index, drop)
    roots = find_roots(store, index, keep_runs=keep_runs, grace=grace)
    if roots.unknown is not None:
        return Proposal(index, roots)
    judge = _Judge(index, roots, drop, before=min(now - grace, roots.since))
    doomed = [one for item in payloads if (one := judge.doomed(item))]
    wanted = [item for item in trash if judge.is_wanted(item)]
    staying = sum(item.bytes for item in payloads)
    return Proposal(
        index,
        roots,
        doomed,
        wanted,
        Counter(held for item in payloads if (held := judge.held(item))),
        _leftovers(store, index, roots, trash, wanted, now=now, grace=grace),
        {
            "payloads": staying - sum(one.item.bytes for one in doomed),
            "quarantine": sum(i.bytes for i in store.files.items("quarantine")),
        },
    )


def _check_kinds(index: Index, drop: Collection[str]) -> None:
    known = {receipt.kind for receipt in index.rows.values()}
    for name in drop:
        if name not in known:
            kinds = sorted({r.kind for r in index.rows.values() if r.stage == name})
            hint = nearest(name, known) or "It has none."
            if kinds:
                hint = f"{name} is a stage of kind {' or '.join(kinds)}."
            raise UnknownNameError(
                f"--drop: expected a kind that the store has results of, got '{name}'. "
                f"{hint}"
            )


class _Judge:
    """Says of each payload whether it goes."""

    def __init__(
        self, index: Index, roots: Roots, drop: Collection[str], *, before: float
    ) -> None:
        self._index, self._roots, self._drop = index, roots, frozenset(drop)
        self._before, self._pinned = before, roots.pinned
        self._rows: defaultdict[str, list[tuple[int, Receipt]]] = defaultdict(list)
        for (number, _), receipt in index.rows.items():
            if receipt.payload:
                self._rows[receipt.payload].append((number, receipt))
        self._runs = [run.begun for run in index.runs]

    def doomed(self, item: Item) -> Doomed | None:
        rows = self._rows.get(item.payload, [])
        reason = self._reason(item, rows)
        if reason is None or not rows:
            return Doomed(item, reason) if reason else None
        number, first = rows[0]
        live = self._live(rows)
        return Doomed(
            item,
            reason,
            self._study(number, first),
            first.stage,
            first.kind,
            sum(receipt.seconds for receipt in live.values()),
        )

    def held(self, item: Item) -> tuple[str, str] | None:
        """Return kind and holder of a payload to be dropped that stays."""
        rows, name = self._rows.get(item.payload, []), item.payload
        if not rows or not {receipt.kind for _, receipt in rows} <= self._drop:
            return None
        pins = sorted(pin for pin, some in self._roots.pins.items() if name in some)
        if pins:
            return rows[0][1].kind, f"pinned by {', '.join(pins)}"
        if name in self._roots.working:
            return rows[0][1].kind, "in use by a run at work"
        return None

    def is_wanted(self, item: Item) -> bool:
        """Whether a payload in the trash was committed, pinned or planned with."""
        if item.payload in self._roots.working | self._pinned:
            return True
        return item.payload in self._rows and item.payload not in self._index.evicted

    def _reason(self, item: Item, rows: Sequence[tuple[int, Receipt]]) -> str | None:
        name, roots = item.payload, self._roots
        if name in roots.working or name in self._pinned or item.time >= roots.since:
            return None
        if not rows:
            return ORPHAN if item.time < self._before else None
        if name in roots.kept:
            return ASKED if {r.kind for _, r in rows} <= self._drop else None
        if name in self._index.evicted:
            return AGAIN
        return UNNAMED if self._live(rows) else STRUCK

    def _live(self, rows: Sequence[tuple[int, Receipt]]) -> dict[str, Receipt]:
        live = self._index.receipts
        return {r.key: r for _, r in rows if _same(live.get(r.key), r)}

    def _study(self, number: int, receipt: Receipt) -> str:
        # Results of earlier versions do not say which run computed them.
        place = bisect(self._runs, receipt.run or number) - 1
        return self._index.runs[place].study if place >= 0 else ""


def _same(live: Receipt | None, receipt: Receipt) -> bool:
    return live is not None and live.payload == receipt.payload


def _leftovers(
    store: Store,
    index: Index,
    roots: Roots,
    trash: Sequence[Item],
    wanted: Sequence[Item],
    *,
    now: float,
    grace: float,
) -> dict[str, list[Item]]:
    room, live = store.files, {run.begun for run in roots.live}
    ended = {run.begun for run in index.runs} - live
    found = {
        # A run at work may have counted on what was moved after it began.
        "collected before": [
            item for item in trash if item not in wanted and item.time < roots.since
        ],
        "unfinished files": [
            item
            for item in room.items("tmp")
            if item.time < min(now - grace, roots.since)
        ],
        "unfinished tiles": [
            item
            for item in room.items("partials")
            if not live and item.time < now - max(grace, PARTIAL_GRACE)
        ],
        "stale signs of life": [
            item for item in room.items("runs") if int(item.payload) in ended
        ],
    }
    return {what: items for what, items in found.items() if items}
