"""Whether a store holds, after all, exactly what a clean one holds."""

import getpass
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.upkeep.collect import collect
from curvflow.flows.upkeep.verify import verify
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Store
from tests.chaos.studies import Study

# What was dated anew has to be older than now, by the clock of a file system.
TICK = 0.1
# Words of other texts too.
COMMON = {"root", "runner"}


def planned(study: Study, store: Store) -> dict[str, str]:
    """Return the label of each node of the study as it stands, by action key."""
    opened = open_study(study.path, store=store.location, overrides=study.overrides)
    plan = make_plan(opened.study, opened.store, opened.files)
    assert plan.counts()["stale"] == plan.counts()["waiting"] == 0
    return {str(node.key): f"{node.stage} {node.coords}" for node in plan.graph}


def differences(store: Store, clean: Store, wanted: Mapping[str, str]) -> list[str]:
    """Compare every array of a store with a clean one's, bit for bit.

    Args:
        store: to be judged.
        clean: where the same studies ran undisturbed.
        wanted: labels of the nodes whose arrays must be there, by action key.

    Returns:
        A line for each difference.
    """
    ours, theirs = store.index().receipts, clean.index().receipts
    lines = [
        f"{label}: not in the store" for k, label in wanted.items() if k not in ours
    ]
    for key, receipt in ours.items():
        label = f"{receipt.stage} {dict(receipt.coords)}"
        if key not in theirs:
            lines.append(f"{label}: no clean run has it")
        else:
            told = _difference(store, receipt, clean, theirs[key], key in wanted)
            lines += [f"{label}: {told}"] if told else []
    return lines


def _difference(
    store: Store, ours: Receipt, clean: Store, theirs: Receipt, is_wanted: bool
) -> str:
    if (ours.status, ours.reason) != (theirs.status, theirs.reason):
        return f"status {ours.status} ({ours.reason}), clean {theirs.status}"
    if ours.payload is None or theirs.payload is None:
        return "" if ours.payload == theirs.payload else "arrays of one side alone"
    if not store.present([ours.payload]):
        return "its arrays are gone" if is_wanted else ""
    if not is_wanted and ours.payload in store.index().evicted:
        return ""
    mine = store.read(ours, list(ours.parts))
    other = clean.read(theirs, list(theirs.parts))
    if mine.keys() != other.keys():
        return f"variables {sorted(mine)}, clean {sorted(other)}"
    unequal = [name for name in mine if not _same(mine[name], other[name])]
    if unequal:
        return f"other bits in {', '.join(unequal)}"
    return "" if ours.digest == theirs.digest else "another digest of equal arrays"


def _same(left, right) -> bool:
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    if left.dtype.kind in "OUT":
        return bool((left == right).all())
    return left.tobytes() == right.tobytes()


def leftovers(store: Store) -> list[str]:
    """Collect once more and return what stays that nobody needs."""
    collect(store, keep_runs=1000, grace=0.0)
    time.sleep(TICK)
    collect(store, keep_runs=1000, grace=0.0)
    lines = [
        f"left: {item.path}"
        for folder in ("tmp", "trash", "runs")
        for item in store.files.items(folder)
    ]
    index, held = store.index(), store.claims.holders()
    lines += [f"claimed: {key}" for key in held if key not in index.receipts]
    return lines


def faults(store: Store) -> list[str]:
    """Return what verification has to say."""
    verdict = verify(store, mend=False)
    torn = [f"torn entry {number}" for number in verdict.torn]
    return torn + [fault.problem for fault in verdict.faults]


def twins(store: Store) -> list[str]:
    """Return the keys of which one action gave two results, as the log notes."""
    folder = Path(store.location)
    return [
        f"two results of one action in {path.name}"
        for path in sorted(folder.glob("commits/*.json"))
        if b'"twins"' in path.read_bytes()
    ]


def traces(folder: Path, names: list[str]) -> Iterator[str]:
    """Find folders, the user and the host named in the files of a store."""
    names = [*names, str(Path.home()), f'"{socket.gethostname()}"']
    names += [user] if (user := getpass.getuser()) not in COMMON else []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for name in names:
            if name.encode() in content:
                yield f"{path.relative_to(folder)} names {name}"
