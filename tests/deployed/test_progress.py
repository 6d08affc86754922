"""Progress is told a fixed number of times, and not too often."""

from curvflow.flows.deployed.observer import STEPS, Steps


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def told(nodes, seconds_each):
    """Count how often progress is told of so many nodes."""
    clock = Clock()
    steps, count = Steps(clock), 0
    for done in range(1, nodes + 1):
        clock.now += seconds_each
        count += steps.is_due(100 * done / nodes)
    return count


def test_progress_is_reported_as_often_for_many_nodes_as_for_few():
    assert told(100, 10) == told(10_000, 10) == STEPS


def test_a_short_run_is_reported_every_few_seconds_at_most():
    assert told(10_000, 0.001) == 3
    assert told(10, 0.1) == 0
