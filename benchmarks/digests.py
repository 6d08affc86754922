"""Compare the results of two source trees, digest by digest, over all shipped studies.

    git worktree add ../before 5d358af
    python -m benchmarks.digests --before ../before

Each tree runs the studies that both have, as the earlier tree ships them, in their
profile `smoke`, into a store of its own. Each result is one of four:

- `same`: one action key, one digest, one status.
- `raised`: its kind has a later version, and the change log names each version since,
  as `` `probe.trace` (version 4) `` does; the lines are printed.
- `follows`: of its inputs those alone differ that come from results that are raised
  or follow, and nothing else in its key does.
- `differs`: everything else, also a result that one tree alone has.

The exit code is 1 if anything differs, a later version is not named, a run fails, or
a store is empty, since equal failures prove nothing. `--keep` keeps the stores, and
what ran into them is not run again.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ruamel.yaml import YAML

from curvflow.flows.graph.graph import Node, node_name
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.open import open_store

ROOT = Path(__file__).parents[1]
MAIN = "from curvflow.cli.app import main; main()"
BULLET = re.compile(r"^- ", re.MULTILINE)

Outcome = Literal["same", "raised", "follows", "differs"]
EXPLAINED: tuple[Outcome, ...] = ("raised", "follows")


@dataclass
class Raise:
    """A later version of a kind, with the results that have it.

    Attributes:
        results: how many there are.
        parts: variables that are another for any of them, or new.
        params: parameters that are another for any of them.
    """

    results: int = 0
    parts: set[str] = field(default_factory=set)
    params: set[str] = field(default_factory=set)

    def add(self, old: Receipt, new: Receipt) -> None:
        """Count a result."""
        self.results += 1
        self.parts |= {
            name.partition("@")[0] for name in _changed(old.parts, new.parts)
        }
        self.params |= set(_changed(old.params, new.params))


@dataclass
class Ledger:
    """What a comparison has found.

    Attributes:
        raised: per kind and its two versions.
        faults: lines on what is wrong.
    """

    raised: dict[tuple[str, int, int], Raise] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def shipped(tree: Path) -> set[str]:
    """Return the shipped studies that have a profile `smoke`, relative to the tree."""
    return {
        str(path.relative_to(tree))
        for path in sorted((tree / "studies").rglob("*.yaml"))
        if "smoke" in (YAML(typ="safe").load(path).get("profiles") or {})
    }


def run(tree: Path, study: Path, store: Path) -> str:
    """Run one study by one tree, unless it did so before; return why the run failed."""
    mark = store.with_name(f"{store.name}.done")
    if mark.exists():
        return ""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MAIN, "run", str(study), "--profile", "smoke"]
    done = subprocess.run(
        [*command, "--store", str(store)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        return f"exit {done.returncode}, {''.join(last)}"
    store.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return ""


def receipts(store: Path) -> list[Receipt]:
    """Return the receipts of a store; none if there is no store."""
    if not store.is_dir():
        return []
    return list(open_store(str(store), create=False).index().receipts.values())


def planned(study: Path, store: Path) -> list[Node]:
    """Return the nodes of a study with their results in a store, producers first."""
    opened = open_study(study, store=store, profile="smoke")
    return list(make_plan(opened.study, opened.store, opened.files).graph)


def judged(
    nodes: Iterable[Node], before: Iterable[Receipt], ledger: Ledger
) -> Counter[Outcome]:
    """Count what became of each result, and note what is raised or wrong.

    Args:
        nodes: of the later tree, producers first, with their receipts.
        before: receipts of the earlier tree.
        ledger: is added to.

    Returns:
        the number of results by outcome.
    """
    earlier = {node_name(receipt): receipt for receipt in before}
    outcomes: dict[Node, Outcome] = {}
    for alike in _by_result(nodes):
        names = [node_name(node) for node in alike]
        old = next((earlier[name] for name in names if name in earlier), None)
        for name in names:
            earlier.pop(name, None)
        outcome, why = _judge(alike[0], old, outcomes)
        outcomes |= dict.fromkeys(alike, outcome)
        if outcome == "differs":
            ledger.faults.append(f"{names[0]}: {why}")
        elif outcome == "raised":
            new = alike[0].receipt
            assert old is not None
            assert new is not None
            change = new.kind, old.version, new.version
            ledger.raised.setdefault(change, Raise()).add(old, new)
    ledger.faults += [f"{name}: expected a result, got none" for name in earlier]
    counts = Counter(outcomes[alike[0]] for alike in _by_result(outcomes))
    counts["differs"] += len(earlier)
    return counts


def _by_result(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """Yield the nodes of each result: those of one action key have one receipt."""
    results: dict[object, list[Node]] = {}
    for node in nodes:
        results.setdefault(node.key or node, []).append(node)
    yield from results.values()


def _judge(
    node: Node, old: Receipt | None, outcomes: Mapping[Node, Outcome]
) -> tuple[Outcome, str]:
    """Return the outcome of a node, and why it differs if it does."""
    new = node.receipt
    if old is None or new is None:
        return "differs", f"only {'after' if new else 'before' if old else 'planned'}"
    if old.key == new.key:
        same = (old.digest, old.status) == (new.digest, new.status)
        return "same" if same else "differs", "another digest under one key"
    if old.kind == new.kind and old.version < new.version:
        return "raised", ""
    if (old.kind, old.version) != (new.kind, new.version):
        versions = f"{old.kind} {old.version} to {new.kind} {new.version}"
        return "differs", f"another kind or an earlier version, {versions}"
    if params := _changed(old.params, new.params):
        return "differs", f"other parameters under one version: {', '.join(params)}"
    changed = _changed_producers(node, old, new)
    if changed and all(outcomes[producer] in EXPLAINED for producer in changed):
        return "follows", ""
    return "differs", "other inputs that no later version explains"


def _changed_producers(node: Node, old: Receipt, new: Receipt) -> list[Node]:
    """Return the nodes whose results reach a node changed; none if they cannot be told.

    They cannot where the earlier result took other nodes than this one takes.
    """
    changed: list[Node] = []
    for name in _changed(old.inputs, new.inputs):
        was, now = old.inputs.get(name), new.inputs.get(name)
        taken = [result.node for result in node.inputs.get(name, ())]
        if isinstance(was, str) and isinstance(now, str) and len(taken) == 1:
            changed += taken
            continue
        if not isinstance(was, list) or not isinstance(now, list):
            return []
        if [row[:2] for row in was] != [row[:2] for row in now]:
            return []
        pairs = zip(was, now, taken, strict=True)
        changed += [producer for earlier, later, producer in pairs if earlier != later]
    return changed


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the names whose values are another, or that one of two lacks."""
    names = sorted(old.keys() | new.keys())
    return [
        name
        for name in names
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]


def entries(tree: Path) -> list[str]:
    """Return the entries of a tree's change log, released or not, one line each."""
    texts = [path.read_text("utf-8") for path in sorted((tree / "changes").glob("+*"))]
    released = (tree / "CHANGELOG.md").read_text("utf-8")
    texts += BULLET.split(released)[1:]
    return [" ".join(text.split()) for text in texts]


def reasons(kind: str, old: int, new: int, log: Iterable[str]) -> dict[int, str]:
    """Return the change log's entry on each version of a kind after the old one."""
    entry_of = {
        version: [text for text in log if f"`{kind}` (version {version})" in text]
        for version in range(old + 1, new + 1)
    }
    return {version: texts[0] if texts else "" for version, texts in entry_of.items()}


def compare(before: Path, after: Path, only: str, folder: Path) -> Ledger:
    """Run and compare studies of two trees, and print a line on each.

    Args:
        before: the earlier tree, whose studies are run.
        after: the later tree.
        only: part of the path of a study.
        folder: of the stores.

    Returns:
        what is raised, and what is wrong.
    """
    ledger = Ledger()
    studies = [s for s in sorted(shipped(before) & shipped(after)) if only in s]
    if not studies:
        ledger.faults.append("no study is compared")
        print(ledger.faults[0])
    for study in studies:
        number = len(ledger.faults)
        stores = [folder / side / study for side in ("before", "after")]
        for side, tree, store in zip(
            ("before", "after"), (before, after), stores, strict=True
        ):
            if failure := run(tree, before / study, store):
                ledger.faults.append(f"the run {side} failed: {failure}")
            if not receipts(store):
                ledger.faults.append(f"the store {side} is empty")
        counts: Counter[Outcome] = Counter()
        if all(map(receipts, stores)):
            nodes = planned(before / study, stores[1])
            counts = judged(nodes, receipts(stores[0]), ledger)
        print(
            f"{study}: {counts['same']} same, {counts['raised']} raised, "
            f"{counts['follows']} follow, {counts['differs']} differ",
            flush=True,
        )
        for fault in ledger.faults[number:]:
            print(f"  {fault}")
    return ledger


def name_versions(ledger: Ledger, log: Iterable[str]) -> None:
    """Print the later versions with what the change log says; without are faults."""
    texts = list(log)
    for (kind, old, new), change in sorted(ledger.raised.items()):
        print(f"\n{kind}, version {old} to {new}, {change.results} results")
        print(f"  variables: {', '.join(sorted(change.parts)) or 'all as before'}")
        if change.params:
            print(f"  parameters: {', '.join(sorted(change.params))}")
        for version, reason in reasons(kind, old, new, texts).items():
            print(f"  {version}: {reason or 'the change log does not name it'}")
            if not reason:
                ledger.faults.append(f"{kind} (version {version}) is not named")


def main(arguments: list[str] | None = None) -> int:
    """Compare two trees; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--only", default="", help="part of the path of a study")
    parser.add_argument("--keep", type=Path, help="folder in which the stores stay")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        stores = (options.keep or Path(folder)).resolve()
        ledger = compare(options.before.resolve(), ROOT, options.only, stores)
    if not ledger.faults and not ledger.raised:
        print("no difference")
    name_versions(ledger, entries(ROOT))
    print(f"\n{len(ledger.faults)} faults")
    return int(bool(ledger.faults))


if __name__ == "__main__":
    sys.exit(main())
