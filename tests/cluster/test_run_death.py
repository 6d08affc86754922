"""A run that is killed leaves no process behind, and nothing that is lost."""

import signal

import pytest

from tests.cluster.studies import LONG, committed, results
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

MIDDLE = 120
# Passes after which the training is at work for certain, and far from its end.
EARLY = 110


@pytest.fixture
def long(project):
    """Return the study, with the results of a run that nobody disturbed."""
    one = project(LONG)
    one.run("--workers", 1, store="calm", width=512)
    one.calm = one.calls
    return one


def ends_as_an_undisturbed_one(long, *arguments):
    before = long.calls
    again = long.start(*arguments, width=512)
    assert again.answer()["executed"]["fit"] == 3
    assert again.err == "curvflow: fit: 3 nodes go on from a kept state\n"
    assert long.calls - before < long.calm - 10
    assert long.kept() == []
    assert results(long.store()) == results(long.store("calm"))
    assert set(committed(long.store()).values()) == {1}


def test_its_own_workers_end_with_it_and_the_next_run_goes_on(long):
    long.hold.write_text("." * (long.calm + MIDDLE))
    run = long.start("--workers", 2, width=512, every=0.0)
    until(long.held.exists)
    assert int(long.held.read_text()) in run.others()
    run.kill()
    assert run.ended() == -signal.SIGKILL
    until(lambda: not run.family())
    long.hold.unlink()
    ends_as_an_undisturbed_one(long, "--workers", 1)


def test_workers_elsewhere_keep_their_tile_and_are_free_again(long, site):
    long.pace.touch()
    run = long.start("--scheduler", site.address, width=512)
    until(lambda: long.calls > long.calm + EARLY)
    run.kill()
    assert run.ended() == -signal.SIGKILL
    until(lambda: len(long.kept()) == 1)
    until(lambda: not any(site.ask(lambda c: c.processing()).values()))
    long.pace.unlink()
    ends_as_an_undisturbed_one(long, "--scheduler", site.address)
