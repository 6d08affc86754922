"""Which form of payload is best: one zip, a folder of chunks, or a sharded folder.

Writes tiles of 32 nodes of incompressible numbers in each form, flushed to the medium,
and reads back one node and all nodes, each from a fresh opening. Ratios are against the
zip and within one run. Then the rest of the store's costs: opening a payload and
loading a log of 100,000 receipts.

    python benchmarks/payloads.py [FOLDER]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.zarr_payloads import ZarrPayload, entries, zip_payload

NODES = 32
SIZES = {"100 KB": (100_000, 9), "10 MB": (10_000_000, 5), "500 MB": (500_000_000, 1)}


def arrays_of(size: int) -> dict[str, Array]:
    """Return one large variable, two series and two scalars per node."""
    rng = np.random.default_rng(0)
    length = max(1, size // 8 // NODES - 42)
    return {
        "weights": rng.normal(size=(NODES, length)),
        "loss": rng.normal(size=(NODES, 20)),
        "accuracy": rng.normal(size=(NODES, 20)),
        "trace": rng.normal(size=NODES),
        "trace_sem": rng.normal(size=NODES),
    }


def write_zip(path: Path, arrays: dict[str, Array]) -> None:
    disk = Disk()
    disk.write(path, zip_payload(arrays))
    disk.flush(path)


def write_folder(path: Path, arrays: dict[str, Array], *, sharded: bool) -> None:
    disk, folders = Disk(), set()
    for name, data in entries(arrays, sharded=sharded):
        disk.make_folder((path / name).parent)
        disk.write(path / name, data)
        disk.flush(path / name)
        folders.add((path / name).parent)
    for folder in folders:
        disk.flush(folder)


FORMS: dict[str, Callable[[Path, dict[str, Array]], None]] = {
    "zip": write_zip,
    "folder": lambda path, arrays: write_folder(path, arrays, sharded=False),
    "sharded": lambda path, arrays: write_folder(path, arrays, sharded=True),
}


def read(path: Path, slots: range) -> None:
    pack = ZarrPayload("payload", path)
    for slot in slots:
        for name in pack.layout():
            pack.rows(name, [slot])


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def measure(folder: Path, size: int, repeats: int) -> dict[str, tuple[float, ...]]:
    arrays, times = arrays_of(size), {}
    for form, write in FORMS.items():
        runs = []
        for _ in range(repeats):
            path = folder / "payload"
            runs.append(
                (
                    timed(lambda: write(path, arrays)),  # noqa: B023
                    timed(lambda: read(path, range(1))),  # noqa: B023
                    timed(lambda: read(path, range(NODES))),  # noqa: B023
                )
            )
            Disk().remove(path)
        times[form] = tuple(statistics.median(part) for part in zip(*runs, strict=True))
    return times


def payloads(folder: Path) -> None:
    print(
        f"{'size':>8} {'form':>8} {'write':>9} {'one node':>9} {'all nodes':>9}  / zip"
    )
    for label, (size, repeats) in SIZES.items():
        times = measure(folder, size, repeats)
        for form, values in times.items():
            seconds = " ".join(f"{value * 1e3:7.1f}ms" for value in values)
            against = zip(values, times["zip"], strict=True)
            ratios = " ".join(f"{value / zipped:.2f}" for value, zipped in against)
            print(f"{label:>8} {form:>8} {seconds}  {ratios}")


def receipt(number: int) -> Receipt:
    digest = f"{number:064x}"
    return Receipt(
        key=digest[::-1],
        stage="fit",
        coords={"rule": "sgd", "seed": number},
        kind="train",
        version=1,
        params={"seed": number, "rule": {"lr": 0.1}, "epochs": 500, "model": "mlp"},
        inputs={"data": "d" * 64},
        digest=digest,
        parts=dict.fromkeys(("loss", "accuracy", "weights", "network"), digest),
        payload="p" * 64,
        slot=number % 64,
        seconds=0.25,
        width=64,
    )


def log(folder: Path, count: int = 100_000, per_commit: int = 64) -> None:
    store = LocalStore(folder / "log")
    receipts = [receipt(number) for number in range(count)]
    tiles = [receipts[n : n + per_commit] for n in range(0, count, per_commit)]
    written = timed(lambda: [store.commit(tile) for tile in tiles])
    loaded = timed(LocalStore(folder / "log").index)
    again = timed(store.index)
    size = sum(p.stat().st_size for p in (folder / "log" / "commits").iterdir())
    print(
        f"{count:,} receipts in {len(tiles):,} commits of "
        f"{size / len(tiles) / 1e3:.0f} KB: "
        f"{written / len(tiles) * 1e3:.1f} ms per commit, "
        f"loaded in {loaded:.2f} s, without news in {again * 1e3:.0f} ms"
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        payloads(folder)
        log(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
