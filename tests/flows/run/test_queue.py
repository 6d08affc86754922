"""What goes first, and in what company."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvflow.flows.graph.graph import compare
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.queue import Schedule
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import STUDY, opened

WIDTH = 2
NO_PATH = STUDY.replace(
    "  path: {use: toy.probe, weights: fit, at: all, scale: 3.0}\n", ""
)
BOTH = ("cpu", "gpu")


def parts(node):
    for variable in node.kind.outputs:
        if variable.optional:
            continue
        if variable.sliced:
            for epoch in node.kind.checkpoints(node.params):
                yield f"{variable.name}@{epoch}"
        else:
            yield variable.name


class Bench:
    """A study, scheduled and done by hand."""

    def __init__(self, *overrides, text=STUDY, cached=(), seconds=None):
        o = opened(MemoryStore(), *overrides, text=text)
        self.graph = make_plan(o.study, o.store, o.files).graph
        for stage, numbers in cached:
            for number in numbers:
                self.finish(self.graph.nodes[stage][number])
        times = seconds or {}
        self.schedule = Schedule(
            self.graph,
            width=lambda *_: WIDTH,
            seconds=lambda node: times.get((node.stage, *node.point), 0.0),
        )

    def finish(self, node):
        compare([node], Index())
        node.state = "cached"
        node.receipt = Receipt(
            key=node.key,
            stage=node.stage,
            coords=node.coords,
            kind=node.kind.name,
            version=1,
            params={},
            inputs={},
            digest="d",
            parts={name: f"{node.key} {name}" for name in parts(node)},
            status="ok",
            reason="",
            payload=None,
            slot=0,
            seconds=0.0,
            width=1,
            device="cpu",
        )

    def look(self):
        due = self.schedule.due()
        compare(due, Index())
        self.schedule.ready(due)
        return due

    def take(self):
        while self.look():
            pass
        return self.schedule.take(BOTH)

    def done(self, nodes):
        for node in nodes:
            self.finish(node)
        self.schedule.done(nodes)

    def all(self):
        """Do everything; return stage and points of each tile, in order."""
        tiles = []
        while tile := self.take():
            tiles.append((tile[0].stage, [node.point for node in tile]))
            self.done(tile)
        return tiles


def test_a_probe_goes_before_the_next_training():
    stages = [stage for stage, _ in Bench().all()]
    assert stages[:2] == ["data", "fit"]
    assert stages[2] in ("last", "path")
    last_fit = max(i for i, stage in enumerate(stages) if stage == "fit")
    assert {"last", "path"} <= set(stages[:last_fit])


def test_every_node_is_computed_once_and_after_what_it_takes():
    bench = Bench()
    order = {n: i for i, n in enumerate(bench.graph)}
    when = {}
    while tile := bench.take():
        when.update(dict.fromkeys(tile, len(when)))
        bench.done(tile)
    assert when.keys() == order.keys()
    for node in when:
        for taken in (t.node for several in node.inputs.values() for t in several):
            assert when[taken] < when[node]


def test_what_is_missing_moves_no_bounds():
    whole = {frozenset(points) for stage, points in Bench().all() if stage == "fit"}
    rest = Bench(cached=[("data", [0]), ("fit", [0, 3])]).all()
    parts = [set(points) for stage, points in rest if stage == "fit"]
    assert len(parts) == len(whole)
    assert all(any(part < tile or part == tile for tile in whole) for part in parts)


def test_a_new_seed_leaves_the_tiles_of_the_others_as_they_were():
    before = [points for stage, points in Bench().all() if stage == "fit"]
    after = [p for stage, p in Bench("axes.seed=4").all() if stage == "fit"]
    assert after[: len(before)] == before


def test_a_tile_waits_for_all_of_its_nodes():
    bench = Bench(text=NO_PATH, cached=[("data", [0]), ("fit", [0])])
    second = bench.graph.nodes["fit"][1]
    tiles = [bench.take(), bench.take(), bench.take()]
    assert [tile[0].stage for tile in tiles] == ["fit"] * 3
    assert not bench.take()  # though the probe of the first net could be computed
    bench.done([second])
    assert bench.take()[0].stage == "last"


def test_what_is_computed_node_by_node_waits_for_nobody():
    done = [("data", [0]), ("fit", [0, 2, 4]), ("last", [0, 2, 4])]
    bench = Bench(text=NO_PATH, cached=done)
    first = bench.take()
    assert [(node.stage, node.point) for node in first] == [("mean", ("slow",))]


def test_the_longest_way_to_the_end_goes_first_among_equals():
    slow = {("fit", 2, "slow"): 5.0}
    for seconds, first in ((None, 0), (slow, 2)):
        bench = Bench(cached=[("data", [0])], seconds=seconds)
        assert bench.take()[0].point[0] == first


def test_a_way_counts_what_comes_after_it():
    late = {("last", 2, "slow"): 5.0}
    bench = Bench(cached=[("data", [0])], seconds=late)
    assert bench.take()[0].point[0] == 2


def test_what_takes_a_failed_node_is_not_waited_for():
    bench = Bench()
    bench.done(bench.take())  # the data
    failed = bench.take()
    bench.schedule.failed(failed)
    done = [stage for stage, _ in bench.all()]
    assert "mean" not in done  # each takes one of the failed
    assert done.count("fit") == 2
    points = [n.point for n in bench.graph if n.state == "cached" and n.stage == "last"]
    assert points
    assert not {node.point for node in failed} & set(points)


def test_what_did_not_fit_is_sent_in_smaller_tiles():
    bench = Bench("axes.seed=4")
    bench.done(bench.take())
    first = bench.take()
    bench.schedule.narrow(first[0], 1)
    assert len(first) == WIDTH
    assert len(bench.schedule.take(BOTH)) == 1


def test_a_tile_that_others_hold_up_is_let_go_on_request():
    bench = Bench(text=NO_PATH, cached=[("data", [0]), ("fit", [0])])
    while tile := bench.take():  # taken, and left to others
        assert tile[0].stage == "fit"
    assert bench.schedule.release()
    held_up = bench.take()
    assert [(node.stage, node.point) for node in held_up] == [("last", (0, "slow"))]
    while bench.take():
        pass
    assert not bench.schedule.release()


def test_nodes_can_be_tried_again():
    bench = Bench()
    tile = bench.take()
    assert not bench.schedule.take(BOTH)
    bench.schedule.ready(tile)
    assert bench.schedule.take(BOTH) == tile


def test_only_what_there_is_room_for_is_taken():
    bench = Bench()
    bench.look()
    assert bench.schedule.take(["gpu"]) == []
    assert bench.schedule.take(["cpu"])[0].stage == "data"


@settings(deadline=None)  # other tests may take the cores
@given(st.data())
def test_in_whatever_order_tiles_come_back_all_is_done_once(data):
    bench, out, seen = Bench(), [], []
    while True:
        while len(out) < 3 and (tile := bench.take()):
            out.append(tile)
            seen += tile
        if not out:
            break
        bench.done(out.pop(data.draw(st.integers(0, len(out) - 1))))
    assert Counter(seen) == Counter(bench.graph)


@pytest.mark.parametrize("stage", ["fit", "last"])
def test_tiles_are_never_wider_than_fits(stage):
    tiles = [points for name, points in Bench("axes.seed=5").all() if name == stage]
    assert max(map(len, tiles)) == WIDTH
