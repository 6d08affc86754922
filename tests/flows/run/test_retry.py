"""What is sent again after a death or a lost heartbeat."""

from types import SimpleNamespace

import pytest

from curvflow.errors import StoreError
from curvflow.flows.graph.tiles import Computed, Failed
from curvflow.flows.run.retry import MOST_INTERRUPTIONS, TileInFlight

ONE_BY_ONE = SimpleNamespace(kind=SimpleNamespace(vectorised=False))
TOGETHER = SimpleNamespace(kind=SimpleNamespace(vectorised=True))


def computed(width):
    return Computed("digest", {}, "ok", "", "payload", 0, 1.0, width, "cpu")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_tile_that_always_dies_is_tried_whole_and_then_in_halves_of_all_nodes(size):
    nodes = list(range(size))
    waiting, sizes, alone = [TileInFlight(nodes)], [], []
    while waiting and len(sizes) < 99:
        tile = waiting.pop(0)
        sizes.append(len(tile.nodes))
        retries = tile.after_death()
        waiting.extend(retries)
        alone.extend([] if retries else tile.nodes)
    assert sizes[:2] == [size, size]
    assert sorted(alone) == nodes  # each fails by its own name
    assert sizes.count(1) == size + (size == 1)


def test_a_retry_remembers_what_it_repeats_and_how_often_it_was_interrupted():
    tile = TileInFlight([1, 2], is_repeat=True, interruptions=3)
    (again,) = tile.after_death()
    for half in again.after_death():
        assert (half.deaths, half.is_repeat, half.interruptions) == (1, True, 3)


def test_a_tile_is_interrupted_so_often_and_no_more():
    tile = TileInFlight([1])
    for count in range(MOST_INTERRUPTIONS):
        assert tile.interruptions == count
        tile = tile.after_interruption("store")
    with pytest.raises(
        StoreError, match=f"got {MOST_INTERRUPTIONS} tries that missed it"
    ):
        tile.after_interruption("store")


@pytest.mark.parametrize(
    ("node", "deaths", "widths", "expected"),
    [
        (TOGETHER, 0, [4, 4, 4, 4], None),  # nothing was too large
        (TOGETHER, 0, [2, 2, 1, 1], 2),
        (TOGETHER, 1, [2, 2], 2),  # half of one over which a process died
        (ONE_BY_ONE, 1, [1, 1], None),
        (TOGETHER, 0, [2, 2, None, 1], None),
    ],
)
def test_the_width_that_fitted_is_known_if_all_nodes_were_computed(
    node, deaths, widths, expected
):
    tile = TileInFlight([node] * len(widths), deaths=deaths)
    reports = [computed(w) if w else Failed("error", "") for w in widths]
    assert tile.width_that_fit(reports) == expected
