"""The time that nodes took is seen, and is part of no result."""

from types import SimpleNamespace

import numpy as np
import pytest

import curvflow
from curvflow.errors import UnknownNameError
from curvflow.flows.graph.tiles import MemberJob, TakenResult, TileJob
from curvflow.schemas.kinds import find_kind
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import run

STUDY = """
study: timed
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 4}
  eigen: {use: probe.eigenvalues, weights: fit, k: 2}
  table: {use: aggregate.summary, of: fit, over: seed}
"""
LONGER = "stages.fit.epochs=9"


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "timed.yaml"
    path.write_text(STUDY)
    return path


def test_times_are_positive_and_lie_within_that_of_the_run(study):
    results = curvflow.run(study)
    seconds = {stage: results[stage]["seconds"] for stage in results}
    assert all((seconds_of > 0).all() for seconds_of in seconds.values())
    assert (
        sum(float(seconds_of.sum()) for seconds_of in seconds.values())
        < results.run.seconds
    )
    fit = results["fit"]
    assert fit["seconds"].dims == fit["seconds_per_epoch"].dims == ("seed",)
    assert fit["seconds"].attrs["units"] == "s"
    np.testing.assert_array_equal(fit["seconds_per_epoch"] * 4, fit["seconds"])
    assert "seconds_per_epoch" not in results["eigen"]


def test_equal_studies_are_equal_whatever_time_they_take():
    digests = []
    for _ in range(2):
        store = MemoryStore()
        run(store, text=STUDY)
        receipts = store.index().receipts
        digests.append({key: (r.digest, r.parts) for key, r in receipts.items()})
    assert digests[0] == digests[1]


def test_longer_training_has_the_time_of_the_epochs_it_was_trained_for(study):
    curvflow.run(study)
    fit = curvflow.run(study, overrides=[LONGER])["fit"]
    np.testing.assert_array_equal(fit["seconds_per_epoch"], fit["seconds"] / 5)


def test_a_record_of_single_values_shows_the_time_too(study):
    results = curvflow.run(study)
    for row in results.records("fit"):
        assert row["seconds_per_epoch"] == row["seconds"] / 4 > 0
    rows = results.records("eigen")
    assert ["seconds" in row for row in rows] == ["rank" not in row for row in rows]
    assert not any("seconds" in row for row in results.records("table"))


def test_times_can_be_requested_by_name(study):
    results = curvflow.run(study)
    (row,) = results.records("table", variables=["seconds"])
    assert list(row) == ["status", "seconds"]
    (row, _) = results.records("fit", variables=["final_train_loss"])
    assert list(row) == ["seed", "status", "final_train_loss"]
    with pytest.raises(UnknownNameError, match="got 'seconds_per_epoch'"):
        results.records("eigen", variables=["seconds_per_epoch"])


def job(*members):
    """Return a tile of trainings, each of so many epochs and gone on from others."""
    params = find_kind("train").params
    member_jobs = []
    for epochs, earlier in members:
        asked = {"model": {"kind": "mlp", "hidden": [2]}, "epochs": epochs}
        receipt = SimpleNamespace(params={"epochs": earlier})
        member_jobs.append(
            MemberJob(
                key="",
                params=params(rule={"rule": "sgd", "lr": 0.1}, **asked),
                inputs={},
                files={},
                shorter=TakenResult({}, receipt, (), "fit") if earlier else None,
            )
        )
    return TileJob("train", member_jobs)


def test_a_tile_knows_its_epochs_if_all_its_members_have_as_many():
    assert job((9, 0), (9, 0)).covered == 9
    assert job((9, 4), (9, 4)).covered == 5
    assert job((9, 0), (9, 4)).covered is None


def test_a_kind_that_continues_nothing_covers_nothing():
    assert TileJob("probe.norms", job((9, 0)).members).covered is None
