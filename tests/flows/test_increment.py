"""Work grows with the change, and never faster than the study: counts, not seconds."""

import gc
import shutil
from collections import Counter
from pathlib import Path

import pytest

from curvflow.errors import CorruptPayloadError
from curvflow.flows.api import results_of
from curvflow.flows.graph import graph, tiles
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.report.basis import Basis
from curvflow.flows.report.gather import gather
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.results.check import check
from curvflow.flows.results.node_results import plan_views
from curvflow.flows.results.outputs import view_records
from curvflow.schemas import keys
from curvflow.schemas.long_lived import one_command
from curvflow.stores import payload_digests
from curvflow.stores.base import Index
from curvflow.stores.local import LocalStore
from curvflow.stores.zarr_payloads import ZarrPayload
from tests.flows.toys import STUDY, opened, run, toy_kinds

SIZES = (500, 2000)
NODES_PER_SEED = 10  # two rules: fit, last, path at three checkpoints


def seeds_of(number):
    return f"axes.seed={list(range(100, 100 + number))}"  # toys fail at seed 13


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folders of finished studies, by size, which no test changes."""
    whole = tmp_path_factory.mktemp("finished")
    with toy_kinds():
        for size in SIZES:
            run(LocalStore(whole / str(size)), seeds_of(size // NODES_PER_SEED))
    return {size: whole / str(size) for size in SIZES}


@pytest.fixture
def folders(finished, tmp_path):
    """Return copies of the folders of finished studies, by size."""
    return {
        size: Path(shutil.copytree(folder, tmp_path / str(size)))
        for size, folder in finished.items()
    }


@pytest.fixture
def counted(monkeypatch):
    """Count what is read, opened, hashed and copied."""
    counts = Counter()

    def count(owner, name, words, number=lambda *_: 1):
        before = getattr(owner, name)

        def wrapped(*args, **kwargs):
            counts[words] += number(*args)
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    count(ZarrPayload, "__init__", "opened")
    count(ZarrPayload, "_read", "reads")
    count(payload_digests, "row_digests", "digest checks")
    count(payload_digests, "row_digests", "bytes hashed", lambda array: array.nbytes)
    count(Index, "copy", "index copies")
    count(graph, "texts_digest", "digests taken")
    count(tiles, "sha256", "signatures")
    count(keys, "_write", "fields written")
    count(graph, "_kept", "checkpoints listed")
    return counts


def work(folders, counted, act):
    """Return the counts of an act on studies of both sizes."""
    both = []
    for size, folder in folders.items():
        store = LocalStore(folder)
        counted.clear()
        act(store, size // NODES_PER_SEED)
        both.append(Counter(counted))
    return both


def views_of(store, seeds):
    o = opened(store, seeds_of(seeds))
    return plan_views(make_plan(o.study, o.store, o.files))


def test_a_plan_writes_what_nodes_share_once(folders, counted):
    small, large = work(folders, counted, views_of)
    for size, counts in zip(SIZES, (small, large), strict=True):
        seeds = size // NODES_PER_SEED
        # Of fit each seed and both rates, and what nodes of a stage have in common.
        assert counts["fields written"] <= seeds + 16
        # Of each network once, whatever is taken of it.
        assert counts["checkpoints listed"] <= 2 * seeds
        # By path at three checkpoints, whose last one is taken by last too, and by the
        # reduction; data once.
        assert counts["digests taken"] <= 4 * 2 * seeds + 8


def test_a_command_leaves_nothing_it_has_planned_to_the_collector(folders):
    plans, looked_at = [], []
    with one_command():
        for size, folder in folders.items():
            o = opened(LocalStore(folder), seeds_of(size // NODES_PER_SEED))
            plans.append(make_plan(o.study, o.store, o.files))
            looked_at.append(len(gc.get_objects()))
    gc.unfreeze()
    # What both have that is no node's, such as the study as it was read.
    assert max(looked_at) < SIZES[0]


def test_a_run_with_nothing_to_do_reads_nothing(folders, counted):
    small, large = work(folders, counted, lambda s, n: run(s, seeds_of(n)))
    for what in ("opened", "reads", "digest checks", "bytes hashed"):
        assert small[what] == large[what] == 0
    assert small["index copies"] == large["index copies"] <= 2


def test_one_seed_more_reads_each_variable_of_a_payload_once(folders, counted):
    def add(store, seeds):
        report = run(store, seeds_of(seeds + 1))
        executed = report.record.counts["executed"]
        # Before the first epoch both rules have the same weights.
        assert executed == {"data": 0, "fit": 2, "last": 2, "path": 5, "mean": 2}

    small, large = work(folders, counted, add)
    few, many = (len(list(folder.glob("payloads/*/*"))) for folder in folders.values())
    for what in ("opened", "reads", "digest checks"):
        assert large[what] - small[what] <= many - few
    assert small["opened"] <= few
    assert small["index copies"] == large["index copies"]
    # The table takes one number of both rules for each seed, and no digest is of more.
    more = (SIZES[1] - SIZES[0]) // NODES_PER_SEED
    assert large["bytes hashed"] - small["bytes hashed"] == 8 * 2 * more
    for size, counts in zip(SIZES, (small, large), strict=True):
        # Of every fit, which has parameters of its own, and of the other stages.
        assert counts["signatures"] <= 2 * (size // NODES_PER_SEED + 1) + 8


def test_records_of_a_stage_are_read_by_column(folders, counted):
    def show(store, seeds):
        view = views_of(store, seeds)["path"]
        assert len(view_records(view, store)) == 6 * seeds

    small, large = work(folders, counted, show)
    for size, counts in zip(SIZES, (small, large), strict=True):
        assert counts["reads"] <= counts["opened"]
        assert counts["digest checks"] <= counts["opened"]
        # One number of both rules at three checkpoints, each hashed once.
        assert counts["bytes hashed"] == 8 * 6 * (size // NODES_PER_SEED)


def test_a_report_reads_no_more_of_a_larger_study(folders, counted, tmp_path):
    file = tmp_path / "toys.yaml"
    file.write_text(STUDY)

    def report(store, seeds):
        o = opened(store, seeds_of(seeds))
        request = ReportRequest(file)
        gather(Basis(request, o, results_of(o), store.index(), STUDY))

    small, large = work(folders, counted, report)
    for what in ("opened", "reads", "digest checks", "bytes hashed"):
        assert small[what] == large[what] > 0  # of the nodes that a page shows
    assert large["reads"] <= 2 * large["opened"]
    assert large["index copies"] == 0


def test_a_stage_of_unreadable_payloads_is_struck_off_in_one_entry(folders, counted):
    both = []
    for size, folder in folders.items():
        store = LocalStore(folder)
        view, before = views_of(store, size // NODES_PER_SEED)["path"], store.index()
        payloads = list(folder.glob("payloads/*/*"))
        for path in payloads:
            path.write_bytes(b"no zarr group")
        counted.clear()
        with pytest.raises(CorruptPayloadError, match="struck off"):
            view_records(view, store)
        index = store.index()
        assert index.number == before.number + 1
        lost = before.receipts.keys() - index.receipts.keys()
        assert lost == {receipt.key for receipt in view.receipts if receipt}
        assert counted["opened"] <= 2 * len(payloads)
        both.append(counted["index copies"])
    assert both[0] == both[1]


def test_many_expectations_of_a_stage_read_it_once(folders, counted):
    text = f"{STUDY}expect:\n" + "".join(
        f"  - {{stage: {stage}, quantity: {quantity}, at_least: {least}}}\n"
        for least in range(20)
        for stage, quantity in (("last", "square"), ("path", "square"))
    )
    few, many = [], []
    for expectations, counts in ((1, few), (40, many)):
        for size, folder in folders.items():
            o = opened(LocalStore(folder), seeds_of(size // NODES_PER_SEED), text=text)
            results = results_of(o)
            counted.clear()
            check(results, o.study.expect[-expectations:])
            counts.append(Counter(counted))
    for size, alone, together in zip(SIZES, few, many, strict=True):
        assert together["digest checks"] <= 2 * alone["digest checks"]
        assert together["bytes hashed"] <= 2 * alone["bytes hashed"]
        assert alone["bytes hashed"] <= 16 * size


CHANGES = {  # by what is computed of n seeds
    "stages.mean.quantities=[square]": lambda n: {"mean": 2},
    "stages.path.scale=2.0": lambda n: {"path": 5 * n},
    "axes.rule={slow: {lr: 0.25}, fast: {lr: 0.75}, more: {lr: 0.3}}": lambda n: {
        "fit": n,
        "last": n,
        "path": 2 * n,
        "mean": 1,
    },
    "payloads lost": lambda n: {
        "data": 1,
        "fit": 2 * n,
        "last": 2 * n,
        "path": 5 * n,
        "mean": 2,
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_work_is_linear_in_what_a_change_touches(folders, counted, change):
    def make(store, seeds):
        if change == "payloads lost":
            for path in folders[seeds * NODES_PER_SEED].glob("payloads/*/*"):
                path.unlink()
        settings = () if change == "payloads lost" else (change,)
        counts = run(store, seeds_of(seeds), *settings).record.counts["executed"]
        assert {name: n for name, n in counts.items() if n} == CHANGES[change](seeds)

    small, large = work(folders, counted, make)
    assert small["index copies"] == large["index copies"] <= 4
    for what in ("bytes hashed", "digests taken", "fields written", "signatures"):
        assert large[what] / SIZES[1] <= 1.05 * small[what] / SIZES[0]
    for counts in (small, large):
        assert counts["opened"] <= 8  # payloads, each of many nodes
    assert large["reads"] <= 2 * small["reads"] + 4
