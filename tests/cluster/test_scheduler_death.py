"""A scheduler that is killed ends the run soundly, or is found again."""

import pytest

from tests.cluster.runs import site as running_site
from tests.cluster.studies import LONG, begun, committed, results
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

MIDDLE = 120


@pytest.fixture
def long(project):
    """Return the study, with the results of a run that nobody disturbed."""
    one = project(LONG)
    one.run("--workers", 1, store="calm")
    one.calm = one.calls
    one.hold.write_text("." * (one.calm + MIDDLE))
    return one


def test_the_run_ends_with_one_line_and_the_next_repeats_nothing(long, tmp_path):
    with running_site(tmp_path, 1) as site:
        run = long.start("--scheduler", site.address)
        until(long.held.exists)
        site.scheduler.kill()
        assert run.ended() == 1
    long.hold.unlink()
    assert (run.out, run.err) == (
        "",
        f"curvflow: {site.address}: expected the scheduler to answer, got no "
        "connection. What is finished is kept: start it again, and run again.\n",
    )
    store = long.store()
    assert [one.status for one in store.index().runs] == ["interrupted"]
    done = set(committed(store))
    assert done
    before = begun(store)
    long.run("--workers", 1)
    after = begun(store)
    assert {key: after[key] for key in done} == {key: before[key] for key in done}
    assert results(store) == results(long.store("calm"))
    assert set(committed(store).values()) == {1}


def test_a_scheduler_that_comes_back_at_once_is_given_the_tiles_again(long, tmp_path):
    with running_site(tmp_path, 1) as site:
        run = long.start("--scheduler", site.address)
        until(long.held.exists)
        address = site.address
        site.come_back(1)
        assert site.address == address
        long.hold.unlink()
        assert run.answer()["executed"]["fit"] == 3
    assert results(long.store()) == results(long.store("calm"))
    assert set(committed(long.store()).values()) == {1}
