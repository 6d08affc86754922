"""How many processes a run is worth."""

import pytest

from curvflow.flows.run.runners.open import Processes, how_many


@pytest.mark.parametrize(
    ("asked", "gpus", "cores", "threads", "tiles", "expected"),
    [
        (None, 0, 8, 1, 4, Processes()),
        (None, 0, 8, 1, 31, Processes()),
        (None, 0, 8, 1, 32, Processes(cpu=2)),
        (None, 0, 8, 1, 10_000, Processes(cpu=8)),
        (None, 0, 8, 4, 10_000, Processes(cpu=2)),
        (None, 0, 1, 1, 10_000, Processes()),
        (None, 1, 64, 1, 10_000, Processes()),
        (None, 8, 64, 1, 10_000, Processes(cpu=8, gpu=8)),
        (None, 8, 64, 1, 3, Processes(cpu=3, gpu=3)),
        (None, 8, 64, 1, 1, Processes()),
        (None, 4, 4, 1, 100, Processes(cpu=1, gpu=4)),
        (1, 8, 64, 1, 100, Processes()),
        (3, 0, 2, 1, 1, Processes(cpu=3)),
        (3, 1, 8, 1, 100, Processes(cpu=3, gpu=1)),
        (3, 8, 64, 1, 100, Processes(cpu=3, gpu=3)),
    ],
)
def test_the_number_of_processes_follows_from_what_there_is(
    asked, gpus, cores, threads, tiles, expected
):
    got = how_many(asked, gpus=gpus, cores=cores, threads=threads, tiles=tiles)
    assert got == expected
