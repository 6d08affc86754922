"""Publish again and again, killed at a later point each time.

    python -m tests.stores.killed FOLDER SCENARIO

A point is a call to `Disk`, before it or, for a write, half-way through. Each attempt
is a forked process with a store of its own, FOLDER/<point>; the last is not killed.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import zarr.storage

from curvflow.stores import local_payloads, zarr_payloads
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.testing.stores import arrays_of, begin, end, publish

SCENARIOS = ("zip", "folder", "without links", "healing")
NEVER = -1
ARRAYS = {"loss": arrays_of(0, nodes=2)["loss"]}


class Killing(Disk):
    """Counts the points, and kills this process at one of them."""

    def __init__(self, point, scenario):
        self.left, self.scenario = point, scenario

    def __getattribute__(self, name):
        if name in vars(Disk) and not name.startswith("_"):
            self.pass_point()
        return super().__getattribute__(name)

    def pass_point(self):
        left, self.left = self.left, self.left - 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path, data):
        with path.open("xb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            self.pass_point()
            file.write(data[len(data) // 2 :])

    def flush(self, path):
        """Leave it to the system, which outlives this process, and save time."""

    def link(self, source, target):
        if self.scenario == "without links":
            raise OSError(95, "Operation not supported")
        super().link(source, target)


def work(store):
    """Do what a run does; what is done already is not done again."""
    if not store.index().runs:
        begin(store)
    if not store.index().receipts:
        publish(store, ARRAYS, ["a", "b"])
    end(store, store.index().runs[0])


def attempt(folder, point, scenario):
    store = LocalStore(folder, disk=Killing(point, scenario))
    work(store)


def prepare(folder, scenario):
    if scenario == "healing":
        store = LocalStore(folder, disk=Killing(NEVER, scenario))
        name = store.write_payload(ARRAYS)
        (chunk,) = folder.glob(f"payloads/*/{name}.zarr/loss/c/0/0")
        chunk.unlink()


def main(folder, scenario):
    # Loaded before the first fork, or each child would load them.
    assert zarr_payloads
    assert zarr.storage
    local_payloads.ZIP_BYTES = 1 << 20 if scenario in ("zip", "without links") else -1
    for point in count():
        child = os.fork()
        if child == 0:
            prepare(folder / str(point), scenario)
            attempt(folder / str(point), point, scenario)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
