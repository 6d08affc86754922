"""Runs with and without workers on one store at once, and what each does first."""

import os
import time
from pathlib import Path

import pytest

from tests.cluster.runs import Command
from tests.cluster.runs import site as running_site
from tests.cluster.studies import (
    CELLS,
    LONG,
    MANY,
    MIXED,
    begun,
    committed,
    journal,
    results,
)
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
# Passes after which a training is at work for certain, and far from its end.
EARLY = 100


def test_a_run_with_workers_and_one_without_compute_each_node_once(project, site):
    long = project(LONG)
    long.pace.touch()
    alone = long.start("--workers", 1)
    until(lambda: (long.folder / "calls").exists() and long.calls > EARLY)
    spread = long.start("--scheduler", site.address)
    store = long.store()
    until(lambda: len(store.index().runs) == 2 and begun(store).total() == 4)
    long.pace.unlink()
    told = [run.answer()["executed"] for run in (alone, spread)]
    total = {stage: sum(one[stage] for one in told) for stage in told[0]}
    assert total == {"data": 1, "fit": 3, "norms": 3, "table": 1}
    assert all(one["fit"] for one in told)
    assert set(committed(store).values()) == {1}
    assert set(begun(store).values()) == {1}
    long.run("--workers", 1, store="calm")
    assert results(store) == results(long.store("calm"))


def first(events, event, stage):
    """Return the place of the first of some events."""
    return next(n for n, (e, s, _) in enumerate(events) if (e, s) == (event, stage))


def test_cells_are_finished_before_the_last_training_begins(project, tmp_path):
    cells = project(CELLS)
    with running_site(tmp_path, 1) as site:
        cells.run("--scheduler", site.address)
    events = journal(cells.store())
    begins = [n for n, (e, s, _) in enumerate(events) if (e, s) == ("begins", "fit")]
    assert len(begins) == 4
    assert first(events, "committed", "norms") < begins[-1]
    assert first(events, "committed", "table") < begins[-1]


def test_a_second_run_begins_with_what_took_longest_in_the_first(project):
    cells = project(CELLS)
    cells.run("--workers", 1)
    cells.run("--workers", 1, "--set", "axes.seed=4")
    store, order = cells.store(), []
    receipts = store.index().receipts
    for event, stage, keys in journal(store):
        if (event, stage) == ("begins", "fit"):
            order.append({receipts[key].coords["net"] for key in keys})
    assert order[0] == {"three"}
    assert len(order) == 4


def test_the_quickstart_is_computed_by_one_process_without_dask(project):
    study = ROOT / "studies" / "quickstart.yaml"
    here = project(MIXED)
    (here.folder / "quickstart.yaml").write_text(study.read_text())
    run = Command(here.folder, "run", "quickstart.yaml", "--profile=smoke", "--json")
    seen = set()
    while run.family():
        seen.update(run.others())
        time.sleep(0.05)
    assert run.answer()["executed"]["fit"] == 4
    assert seen == set()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_study_of_many_tiles_is_computed_by_several_processes(project):
    many = project(MANY)
    run = many.start()
    assert run.answer()["executed"] == {"mine": 80}
    store = many.store()
    payloads = {one.payload for one in store.index().receipts.values()}
    pids = {int(pid) for one in payloads for pid in store.read_payload(one)["pid"]}
    assert len(pids) > 1
    assert run.pid not in pids
