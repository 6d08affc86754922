"""One study gives the same results and tells the same, wherever its store is."""

from itertools import count
from types import SimpleNamespace
from unittest import mock

import pytest

from curvflow.flows.run import compute
from curvflow.stores import local_payloads
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from tests.faults.children import digests
from tests.flows.toys import run

STEPS = (
    (),
    ("axes.seed=5",),
    ("axes.rule.slow.lr=3.0",),  # diverges
    ("axes.seed=[3, 13]",),  # fails
    (),
)


def history(store):
    """Run one study in several forms and return all that the log says of it.

    Each tile takes a second, because measured times decide what a later run begins
    with, and so the order of the log.
    """
    clock = SimpleNamespace(perf_counter=count(0.0).__next__)
    with mock.patch.object(compute, "time", clock):
        counts = [run(store, *overrides).record.counts for overrides in STEPS]
    index = store.index()
    rows = list(index.rows.values())
    runs = [(r.study, r.number, r.status, r.document, r.tables) for r in index.runs]
    notes = [store.journal(record) for record in index.runs]
    return counts, rows, runs, notes, digests(store)


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["zip", "folder"])
def test_a_local_store_and_one_in_memory_show_the_same(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", limit)
    assert history(LocalStore(tmp_path / "store")) == history(MemoryStore())
