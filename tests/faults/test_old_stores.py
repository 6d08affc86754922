"""Stores of earlier versions are read, and what still holds in them runs no more.

`first` was written when `train` was of version 1, `second` when it was of version 2 and
`probe.hessian_trace` of version 1, `third` when both were of version 2, `fourth` and
`fifth` when the latter was of versions 3 and 4. A kind whose version is raised moves
the present store into MOVED, and a run of `study.yaml`, zipped, takes its place.
"""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from curvflow.flows.api import open as open_results
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.flows.run.settle import Answer
from curvflow.flows.upkeep.verify import verify
from curvflow.schemas.options import RunOptions
from tests.faults.children import begun, ended, start, study

OLD = Path(__file__).parents[1] / "old_stores"
STORES = sorted(OLD.glob("*.zip"))
# The first stage whose version has been raised since a store was written.
MOVED = {
    "2026-11-first": "fit",
    "2026-11-second": "trace",
    "2026-11-third": "trace",
    "2026-11-fourth": "trace",
}
# What has one more column since in a table that names no quantities.
ANOTHER = ("aggregate.summary",)
PRESENT = [path for path in STORES if path.stem not in MOVED]
EARLIER = [path for path in STORES if path.stem in MOVED]


def unpacked(archive, tmp_path):
    """Return a study beside a store of an earlier version."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / ".curvflow")
    path = tmp_path / "study.yaml"
    path.write_bytes((OLD / "study.yaml").read_bytes())
    return path


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
def path(request, tmp_path):
    return unpacked(request.param, tmp_path)


@pytest.fixture(params=PRESENT, ids=lambda path: path.stem)
def present(request, tmp_path):
    return unpacked(request.param, tmp_path)


@pytest.fixture(params=EARLIER, ids=lambda path: path.stem)
def earlier(request, tmp_path):
    return unpacked(request.param, tmp_path), MOVED[request.param.stem]


def plan(path, *overrides):
    o = open_study(path, overrides=overrides)
    return make_plan(o.study, o.store, o.files)


def accept(path, kinds):
    """Accept code that computes every result of these kinds again, and the same."""
    o = open_study(path)
    kinds = [kind for kind in kinds if kind not in ANOTHER]
    same = "the same results"
    answer = Answer(accept=kinds, rerun=ANOTHER, reason=same, verify=1.0)
    options = RunOptions(workers=1)
    run_study(o.study, o.store, o.files, options=options, answer=answer)
    settlements = o.store.index().settlements
    assert sorted(one.kind for one in settlements) == kinds
    assert all(one.evidence["sampled"] > 0 for one in settlements)


def test_there_are_stores_of_earlier_versions():
    assert PRESENT
    assert EARLIER


def test_every_node_that_no_version_has_moved_from_is_done(present):
    counts = plan(present).counts()
    assert counts["cached"] == counts["total"] > 10


def test_what_a_version_has_moved_from_is_to_be_computed_with_the_reason(earlier):
    path, moved = earlier
    found = plan(path)
    assert found.counts("data")["cached"] == 1
    assert found.counts("fit")["cached"] == (0 if moved == "fit" else 4)
    assert found.counts(moved)["stale"] == found.counts(moved)["total"] == 4
    reasons = found.as_json()["stages"][moved]["reasons"]
    causes = " ".join(reason["cause"] for reason in reasons)
    assert re.search(r"version \d+ -> \d+", causes)


def test_every_payload_of_an_earlier_version_is_sound(path):
    verdict = verify(open_study(path).store)
    assert verdict.is_well
    assert verdict.payloads > 5


def assert_shown(results):
    trace = results["trace"]["trace"].sel(rule="sgd")
    assert np.isfinite(trace).all()
    assert list(results["table"].rule) == ["sgd", "wild"]
    assert set(results.view("table").counts()) == {"ok"}


def test_results_of_an_earlier_version_are_shown_as_they_stood(path):
    assert_shown(open_results(path, run=1))


def test_results_are_shown_as_they_stand(present):
    assert_shown(open_results(present))


@pytest.mark.slow
def test_a_new_seed_runs_alone_on_a_store_of_an_earlier_version(present):
    path = present
    # Code has changed since then, and must give the same results.
    accept(path, sorted(drift.kind for drift in plan(path).drifts))
    before = set(open_study(path).store.index().receipts)
    assert plan(path, "axes.seed=[0, 1, 77]").counts("fit")["stale"] == 2
    assert ended(start(study, path, "axes.seed=[0, 1, 77]")) == 0
    store = open_study(path).store
    run = store.index().runs[-1]
    assert run.counts["executed"]["fit"] == 2
    assert run.counts["cached"]["fit"] == 4
    again = {key for note in store.journal(run) for key in note.get("keys", ())}
    assert not again & before
    again = {r.key for r in store.index().rows.values() if r.kind in ANOTHER}
    assert {n for key, n in begun(store).items() if key not in again} == {1}
    assert ended(start(study, path, "axes.seed=[0, 1, 77]")) == 0
    last = open_study(path).store.index().runs[-1]
    assert set(last.counts["executed"].values()) == {0}
