"""A run with workers that is asked to end, by a terminal or by a command."""

import os
import signal

import pytest

from tests.cluster.runs import site as running_site
from tests.cluster.studies import LONG, committed, results
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

ASKED = "curvflow: stopping as soon as work is safe; once more to stop now"
KEPT = "curvflow: fit: the state of 3 nodes in work is kept"
# Passes after which the training is at work for certain, and far from its end.
EARLY = 110
SAID = "curvflow: interrupted; finished tiles are kept, run again to go on"


@pytest.fixture
def long(project):
    one = project(LONG)
    one.run("--workers", 1, store="calm", width=512)
    one.calm = one.calls
    return one


def goes_on(long):
    """The next run ends as an undisturbed one and trains no epoch again."""
    long.pace.unlink(missing_ok=True)
    before, (state,) = long.calls, long.kept()
    long.run("--workers", 1, width=512)
    assert long.calls - before < long.calm - 10
    assert not state.exists()
    assert results(long.store()) == results(long.store("calm"))
    assert set(committed(long.store()).values()) == {1}


def slow_run(long):
    long.pace.touch()
    run = long.start("--workers", 2, width=512)
    until(lambda: long.calls > long.calm + EARLY)
    return run


def test_ctrl_c_once_keeps_the_training_and_leaves_no_process(long):
    run = slow_run(long)
    run.interrupt()
    assert run.ended() == 130
    assert (run.out, run.err) == ("", f"{ASKED}\n{KEPT}\n{SAID}\n")
    assert run.family() == []
    goes_on(long)


def test_a_request_to_terminate_keeps_the_training_and_leaves_no_process(long):
    run = slow_run(long)
    run.interrupt(signal.SIGTERM)  # as a queue does
    assert run.ended() == 143
    assert (run.out, run.err) == ("", f"{ASKED}\n{KEPT}\n{SAID}\n")
    assert run.family() == []
    goes_on(long)


def test_ctrl_c_twice_ends_all_at_once_and_nothing_is_lost(long):
    long.hold.write_text("." * (long.calm + 120))
    run = long.start("--workers", 2, width=512)
    until(long.held.exists)
    run.interrupt()
    until(lambda: ASKED in run.err)
    run.interrupt()
    assert run.ended() == 130
    assert (run.out, run.err) == ("", f"{ASKED}\n{SAID}\n")
    assert run.family() == []
    assert long.kept() == []
    long.hold.unlink()
    long.run("--workers", 1, width=512)
    assert results(long.store()) == results(long.store("calm"))
    assert set(committed(long.store()).values()) == {1}


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_ctrl_c_while_workers_start_is_heeded_as_well(project, times):
    long = project(LONG)
    run = long.start("--workers", 2, width=512)
    until(lambda: len(run.others()) >= 2)
    run.interrupt()
    if times == 2:
        until(lambda: ASKED in run.err)
        run.interrupt()
    assert run.ended() == 130
    # A process that has just been made may complain that the run is no more.
    assert run.err.startswith(f"{ASKED}\n{SAID}\n")
    assert times == 2 or run.err == f"{ASKED}\n{SAID}\n"
    until(lambda: not run.family())


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_die_after_the_wish_to_end_change_nothing_of_it(
    project, tmp_path, workers
):
    long = project(LONG)
    long.hold.write_text("." * EARLY)
    with running_site(tmp_path, workers) as site:
        run = long.start("--scheduler", site.address, width=512, patience=1.0)
        until(long.held.exists)
        run.kill(signal.SIGINT)
        until(lambda: ASKED in run.err)
        os.kill(int(long.held.read_text()), signal.SIGKILL)
        assert run.ended() == 130
    assert run.err.splitlines() == [ASKED, SAID]
