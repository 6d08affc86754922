"""The Python door: results as xarray sees them."""

import numpy as np
import pytest
import xarray as xr

import curvflow
from curvflow.errors import CorruptPayloadError, CurvflowError, UnknownNameError
from tests.flows.toys import CALLS, STUDY


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "toys.yaml"
    path.write_text(STUDY)
    return path


def test_run_returns_results_with_the_axes_as_leading_dims(study):
    results = curvflow.run(study)
    assert list(results) == ["data", "fit", "last", "path", "mean"]
    fit = results["fit"]
    assert fit["final"].dims == ("seed", "rule")
    assert fit["loss"].dims == ("seed", "rule", "epoch")
    assert fit["epoch"].values.tolist() == [0, 1, 2, 3, 4]
    assert fit.attrs["kind"] == "toy.fit"
    assert results.run.counts["executed"]["fit"] == 6


def test_values_can_be_selected_by_label(study):
    last = curvflow.run(study)["last"]
    got = float(last["square"].sel(seed=1, rule="fast"))
    assert got == pytest.approx((2 * 0.25**4) ** 2, rel=1e-12)
    assert last["square"].attrs["units"] == "weight^2"


def test_probes_at_several_checkpoints_have_the_dimension_epoch(study):
    path = curvflow.run(study)["path"]
    assert path["square"].dims == ("seed", "rule", "epoch")
    assert path["epoch"].values.tolist() == [0, 2, 4]


def test_ragged_epochs_are_missing_where_there_is_no_checkpoint(study):
    text = STUDY.replace('"${rule.lr}"', '"${rule.lr}", epochs: "${rule.epochs}"')
    study.write_text(text.replace("lr: 0.25}", "lr: 0.25, epochs: 4}"))
    study.write_text(study.read_text().replace("lr: 0.75}", "lr: 0.75, epochs: 2}"))
    path = curvflow.run(study)["path"]
    assert path["epoch"].values.tolist() == [0, 2, 4]
    fast = path.sel(rule="fast")
    assert np.isfinite(fast["square"].values).all(axis=0).tolist() == [
        True,
        True,
        False,
    ]
    assert (fast["status"].sel(epoch=4) == "missing").all()


def test_open_computes_nothing_and_marks_what_is_missing(study):
    results = curvflow.open(study)
    assert not CALLS
    assert (results["fit"]["status"] == "missing").all()
    curvflow.run(study)
    CALLS.clear()
    assert (curvflow.open(study)["fit"]["status"] == "ok").all()
    assert not CALLS


def test_open_as_of_a_run_sees_what_that_run_left(study):
    curvflow.run(study)
    curvflow.run(study, overrides=["stages.last.scale=2.0"])
    first, second = (curvflow.open(study, run=n)["last"]["square"] for n in (1, 2))
    np.testing.assert_allclose(2 * first.values, second.values)


def test_a_run_without_news_points_to_the_tables_of_the_last(study):
    curvflow.run(study)
    again = curvflow.run(study)
    assert set(again.run.tables) == {"same_as"}
    reopened = curvflow.open(study, run=2)
    xr.testing.assert_equal(reopened["mean"], again["mean"])


def test_diverged_nodes_keep_what_they_have(study):
    rule = "axes.rule={slow: {lr: 0.25}, wild: {lr: 9.0}}"
    results = curvflow.run(study, overrides=[rule])
    wild = results["fit"].sel(rule="wild")
    assert (wild["status"] == "diverged").all()
    assert np.isfinite(wild["loss"].values).sum(axis=1).tolist() == [2, 2, 2]
    assert np.isnan(results["last"]["square"].sel(rule="wild")).all()


def test_tree_holds_every_stage(study):
    tree = curvflow.run(study).tree
    assert set(tree.children) == {"data", "fit", "last", "path", "mean"}


def test_reading_is_lazy_and_verified(study):
    receipts = curvflow.run(study).view("last").receipts
    square = curvflow.open(study)["last"]["square"]
    for path in study.parent.rglob(f"{receipts[0].payload}*"):
        path.write_bytes(b"torn")
    with pytest.raises(CorruptPayloadError, match="struck off; run the study"):
        _ = square.values
    assert curvflow.run(study).run.counts["executed"]["last"] > 0


def test_unknown_stages_and_runs_are_named(study):
    results = curvflow.run(study)
    with pytest.raises(UnknownNameError, match=r"no stage 'fitt'.*'fit'"):
        results["fitt"]
    with pytest.raises(UnknownNameError, match=r"no run 9. Runs: 1 to 1"):
        curvflow.open(study, run=9)
    assert issubclass(UnknownNameError, CurvflowError)


def test_the_door_offers_what_it_lists():
    for name in curvflow.__all__:
        assert getattr(curvflow, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = curvflow.runn
