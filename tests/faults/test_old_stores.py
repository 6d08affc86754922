"""Stores of earlier versions are read, and nothing in them runs again."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from curvflow.flows.api import open as open_results
from curvflow.flows.door import open_study
from curvflow.flows.plan import make_plan
from curvflow.flows.upkeep.verify import verify
from tests.faults.children import begun, ended, start, study

OLD = Path(__file__).parents[1] / "old_stores"
STORES = sorted(OLD.glob("*.zip"))


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
def path(request, tmp_path):
    """Return a study beside a store of an earlier version."""
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path / ".curvflow")
    path = tmp_path / "study.yaml"
    path.write_bytes((OLD / "study.yaml").read_bytes())
    return path


def plan(path, *overrides):
    o = open_study(path, overrides=overrides)
    return make_plan(o.study, o.store, o.files)


def test_there_are_stores_of_earlier_versions():
    assert len(STORES) >= 1


def test_every_node_of_an_earlier_version_is_done(path):
    counts = plan(path).counts()
    assert counts["cached"] == counts["total"] > 10


def test_every_payload_of_an_earlier_version_is_sound(path):
    verdict = verify(open_study(path).store)
    assert verdict.is_well
    assert verdict.payloads > 5


def test_results_of_an_earlier_version_are_shown_as_they_stand_and_as_they_stood(path):
    for number in (None, 1):
        results = open_results(path, run=number)
        trace = results["trace"]["trace"].sel(rule="sgd")
        assert np.isfinite(trace).all()
        assert list(results["table"].rule) == ["sgd", "wild"]
        assert set(results.view("table").counts()) == {"ok"}


@pytest.mark.slow
def test_a_new_seed_runs_alone_on_a_store_of_an_earlier_version(path):
    before = set(open_study(path).store.index().receipts)
    assert plan(path, "axes.seed=[0, 1, 77]").counts("fit")["stale"] == 2
    assert ended(start(study, path, "axes.seed=[0, 1, 77]")) == 0
    store = open_study(path).store
    run = store.index().runs[-1]
    assert run.counts["executed"]["fit"] == 2
    assert run.counts["cached"]["fit"] == 4
    again = {key for note in store.notes(run) for key in note.get("keys", ())}
    assert not again & before
    assert set(begun(store).values()) == {1}
    assert ended(start(study, path, "axes.seed=[0, 1, 77]")) == 0
    last = open_study(path).store.index().runs[-1]
    assert set(last.counts["executed"].values()) == {0}
