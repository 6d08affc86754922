"""Threads may share a store object."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from curvflow.stores.local import LocalStore
from curvflow.stores.log import Log
from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import arrays_of, begin, publish, receipt_of

THREADS = 4


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "s")


@pytest.fixture(autouse=True)
def _often():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work):
    """Return what each of some threads returns that begin together."""
    ready = threading.Barrier(THREADS)

    def begun(thread):
        ready.wait()
        return work(thread)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(begun, range(THREADS)))


def test_what_threads_commit_at_once_is_in_the_index_once(store):
    receipts = [receipt_of(arrays_of(), 0, key=f"k{n}") for n in range(20)]

    def commit(thread):
        begin(store, f"study {thread}")
        return [live for receipt in receipts for live in store.commit([receipt])]

    results = at_once(commit)
    index = store.index()
    assert all(result == receipts for result in results)
    assert index.number == len(receipts) + THREADS
    assert sorted(live.key for live in index.rows.values()) == sorted(index.receipts)
    assert [run.number for run in index.runs] == [1] * THREADS
    assert index == Log(store._log._commits, "again").index()


def test_what_threads_claim_at_once_is_claimed_once(store):
    keys = [f"k{n}" for n in range(20)]

    def claim(thread):
        return [k for k in keys if store.claims.take(thread + 1, [k], lambda _: False)]

    claimed = at_once(claim)
    assert sorted(key for keys_of_run in claimed for key in keys_of_run) == sorted(keys)
    held = {
        key: run for run, keys_of_run in enumerate(claimed, 1) for key in keys_of_run
    }
    assert store.claims.holders() == held


def test_threads_read_the_same_results_at_once(store):
    arrays = arrays_of(nodes=12)
    keys = [f"k{n}" for n in range(12)]
    receipts = publish(store, arrays, keys)

    def read(thread):
        mine = receipts[thread:] + receipts[:thread]
        keys_of_run = {live.slot: store.read(live, ["loss"])["loss"] for live in mine}
        return np.array([keys_of_run[slot] for slot in range(12)])

    for keys_of_run in at_once(read):
        np.testing.assert_array_equal(keys_of_run, arrays["loss"])
