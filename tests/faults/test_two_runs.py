"""Several runs on one store: each result is live once, and computed once."""

import os
import random
import signal
import time

import pytest

from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from tests.faults.children import (
    begun,
    committed,
    digests,
    ended,
    start,
    toy,
    until,
)
from tests.flows.toys import run

pytestmark = pytest.mark.processes

# Six studies that have much in common, none all.
STUDIES = (
    ("axes.seed=8",),
    ("axes.seed=8", "stages.last.scale=2.0"),
    ("axes.seed=12",),
    ("axes.seed=6", "axes.rule.slow.lr=0.3"),
    ("axes.seed=[3, 5, 11, 14]",),
    ("axes.seed=10", "stages.path.at={every: 2}"),
)


def calm():
    """Return a store on which the same studies ran one after another."""
    store = MemoryStore()
    for overrides in STUDIES:
        run(store, *overrides)
    return store


def crowd(folder):
    return [start_toy(folder, number) for number in range(len(STUDIES))]


def start_toy(folder, number, lots=0):
    return start(sleepy_toy, folder, STUDIES[number], number + 10 * lots)


def sleepy_toy(folder, overrides, lots):
    toy(folder, *overrides, lots=lots)


@pytest.mark.slow
def test_six_runs_at_once_compute_each_node_once(tmp_path):
    assert [ended(process) for process in crowd(tmp_path / "store")] == [0] * 6
    store = LocalStore(tmp_path / "store")
    assert digests(store) == digests(calm())
    assert set(committed(store).values()) == {1}
    assert set(begun(store).values()) == {1}
    assert begun(store).keys() == committed(store).keys()


@pytest.mark.slow
def test_six_runs_some_of_them_killed_end_as_undisturbed_ones(tmp_path):
    draw, killed = random.Random(1), 0
    for lots in range(3):
        processes = [start_toy(tmp_path / "store", n, lots) for n in range(6)]
        for victim in draw.sample(processes, 4):
            time.sleep(draw.uniform(0, 0.2))
            victim.kill()
        killed += [ended(process) for process in processes].count(-signal.SIGKILL)
    assert killed > 3
    assert [ended(process) for process in crowd(tmp_path / "store")] == [0] * 6
    store = LocalStore(tmp_path / "store")
    assert digests(store) == digests(calm())
    assert set(committed(store).values()) == {1}
    assert begun(store).total() <= begun(calm()).total() + 2 * killed
    assert list((tmp_path / "store" / "partials").iterdir()) == []


def test_a_run_that_was_paused_too_long_is_taken_over_and_ends_well(tmp_path):
    folder, hold = tmp_path / "store", tmp_path / "hold"
    first = start(held_toy, folder, hold)
    until(hold.exists)
    os.kill(first.pid, signal.SIGSTOP)
    hold.unlink()
    second = start(held_toy, folder, hold)
    assert ended(second) == 0
    assert first.exitcode is None
    os.kill(first.pid, signal.SIGCONT)
    assert ended(first) == 0
    store, expected = LocalStore(folder), MemoryStore()
    run(expected)
    assert digests(store) == digests(expected)
    assert set(committed(store).values()) == {1}
    assert sorted(begun(store).values())[-2:] == [2, 2]  # the tile in its hands
    assert begun(store).total() == len(digests(store)) + 2
    assert [record.status for record in store.index().runs] == ["done", "done"]


def held_toy(folder, hold):
    toy(folder, silence=0.6, hold=hold)


def test_what_a_dead_run_had_claimed_is_free_at_once(tmp_path):
    folder, hold = tmp_path / "store", tmp_path / "hold"
    first = start(patient_toy, folder, hold)
    until(hold.exists)
    first.kill()
    assert ended(first) == -signal.SIGKILL
    store = LocalStore(folder)
    held = store.claims.holders()
    assert held
    run(store)  # would otherwise wait for an hour
    assert held.keys() <= digests(store).keys()
    assert list((folder / "claims").iterdir()) != []


def patient_toy(folder, hold):
    toy(folder, silence=3600.0, hold=hold)
