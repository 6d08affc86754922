"""Tiles computed by the workers of real clusters."""


import pytest

from curvflow.flows.compute import compute_tile
from curvflow.flows.partials import Partials
from curvflow.flows.runners.base import Finished
from curvflow.flows.stopping import Stopping
from curvflow.tasks.machine import machine_for
from tests.flows.runners.conftest import came_back, fit

pytestmark = pytest.mark.cluster


def test_a_tile_has_the_digests_of_one_computed_in_process(local, running):
    runner = running.runner(local)
    (returned,) = came_back(runner, runner.submit(fit(0, 1), needs="cpu", priority=0))
    assert isinstance(returned, Finished)
    nowhere = Partials(running.store, Stopping())
    here = compute_tile(running.store, fit(0, 1), machine_for("cpu", 1), nowhere)
    assert [one.digest for one in returned.reports] == [one.digest for one in here]
    assert {one.payload for one in returned.reports} == {one.payload for one in here}
