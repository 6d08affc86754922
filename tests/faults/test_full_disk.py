"""A full disk ends a run and loses nothing of what was done."""

import errno
import os

import numpy as np
import pytest

import curvflow.flows.graph.tiles as tiles
from curvflow.errors import Stopped, StoreError
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.run.compute import Snapshots
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from tests.faults.children import begun, committed, digests
from tests.flows.toys import run


class Full(Disk):
    """Has room for so many writes, and then for half of one."""

    def __init__(self, writes, number):
        self.left, self.number = writes, number

    def write(self, path, data):
        self.left -= 1
        if self.left < 0:
            super().write(path, data[: len(data) // 2])
            raise OSError(self.number, os.strerror(self.number))
        super().write(path, data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full", "quota"])
@pytest.mark.parametrize("writes", [0, 3, 8, 13, 18, 23])
def test_a_run_on_a_disk_that_fills_up_says_so_and_loses_nothing(
    tmp_path, monkeypatch, writes, number
):
    monkeypatch.setattr(tiles, "MAX_WIDTH", 2)
    folder = tmp_path / "store"
    LocalStore(folder).make()
    with pytest.raises(StoreError, match=r"expected room for .* bytes") as told:
        run(LocalStore(folder, disk=Full(writes, number)))
    assert "\n" not in str(told.value)
    assert list((folder / "tmp").iterdir()) == []
    done = digests(LocalStore(folder))
    run(LocalStore(folder))
    expected = MemoryStore()
    run(expected)
    store = LocalStore(folder)
    assert digests(store) == digests(expected)
    assert done.items() <= digests(store).items()
    assert set(committed(store).values()) == {1}
    assert begun(store).total() <= len(digests(store)) + 2  # the tile in its hands


class NoRoom(MemoryStore):
    """Has no room for what is not finished."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    def save_snapshot(self, name, arrays):
        self.asked += 1
        raise StoreError("expected room for 8 bytes, got 0")


def test_a_state_that_cannot_be_kept_does_not_end_the_training():
    store, stop, now = NoRoom(), Stopping(), [0.0]
    partials = Snapshots(store, stop, every=60.0, clock=lambda: now[0])
    keeper = partials.of("tile", nodes=1)
    now[0] = 61.0
    assert keeper.is_due()
    keeper.keep({"x": np.zeros(1)})
    assert not keeper.is_due()  # tried again after as long, not at every step
    assert store.asked == 1
    stop.signal = 15
    with pytest.raises(Stopped):
        keeper.keep({"x": np.zeros(1)})
