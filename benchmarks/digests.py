"""Compare the results of two source trees, digest by digest, over all shipped studies.

    git worktree add ../before 5d358af
    python -m benchmarks.digests --before ../before

Each tree runs the studies that both have, as the earlier tree ships them, in their
profile `smoke`, into a store of its own. A refactor that changes no behaviour leaves
every action key with its digest.
Nodes without a result, for want of a data set say, are compared by their absence.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from curvflow.stores.open import open_store

ROOT = Path(__file__).parents[1]
MAIN = "from curvflow.cli.app import main; main()"


def shipped(tree: Path) -> set[str]:
    """Return the shipped studies that have a profile `smoke`, relative to the tree."""
    return {
        str(path.relative_to(tree))
        for path in sorted((tree / "studies").rglob("*.yaml"))
        if "smoke" in (YAML(typ="safe").load(path).get("profiles") or {})
    }


def run(tree: Path, study: Path, store: str) -> int:
    """Run one study by one tree and return its exit code."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MAIN, "run", str(study), "--profile", "smoke"]
    done = subprocess.run(
        [*command, "--store", store],
        cwd=tree,
        env=environment,
        capture_output=True,
        check=False,
    )
    return done.returncode


def digests(store: str) -> dict[str, str]:
    """Return stage, kind, status and digest of every receipt, by action key."""
    return {
        key: f"{receipt.stage} {receipt.kind} {receipt.status} {receipt.digest}"
        for key, receipt in open_store(store, create=False).index().receipts.items()
    }


def compare(before: Path, after: Path, only: str) -> int:
    """Print a line per study and return how many results differ."""
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for study in sorted(shipped(before) & shipped(after)):
            if only not in study:
                continue
            stores = [f"{folder}/{side}/{study}" for side in ("before", "after")]
            trees = zip((before, after), stores, strict=True)
            codes = [run(tree, before / study, store) for tree, store in trees]
            old, new = map(digests, stores)
            keys = old.keys() | new.keys()
            wrong = sorted(key for key in keys if old.get(key) != new.get(key))
            print(f"{study}: {len(keys)} results, {len(wrong)} differ, exit {codes}")
            for key in wrong:
                print(f"  {key[:12]}: {old.get(key)} -> {new.get(key)}")
            faults += len(wrong) + (codes[0] != codes[1])
    return faults


def main() -> int:
    """Compare two trees; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--only", default="", help="part of the path of a study")
    options = parser.parse_args()
    return int(compare(options.before.resolve(), ROOT, options.only) > 0)


if __name__ == "__main__":
    sys.exit(main())
