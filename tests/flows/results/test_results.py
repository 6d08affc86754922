"""The Python door: results as xarray sees them."""

from unittest import mock

import numpy as np
import pytest
import xarray as xr

import curvflow
from curvflow.errors import CorruptPayloadError, CurvflowError, UnknownNameError
from curvflow.flows.results.node_results import View, plan_views, run_tables, run_views
from curvflow.flows.results.results import Results
from curvflow.schemas import kinds
from curvflow.stores.base import Index
from curvflow.stores.memory import MemoryStore
from curvflow.stores.open import open_store
from tests.flows.toys import CALLS, STUDY, run


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


def test_looking_for_a_stage_reads_nothing(study):
    results = curvflow.run(study)
    with mock.patch.object(Results, "__getitem__", side_effect=AssertionError):
        assert "fit" in results
        assert "fitt" not in results


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
    assert all(set(table) == {"same_as"} for table in again.run.tables.values())
    reopened = curvflow.open(study, run=2)
    xr.testing.assert_equal(reopened["mean"], again["mean"])


def test_a_changed_stage_does_not_repeat_the_tables_of_the_others(study):
    curvflow.run(study)
    changed = curvflow.run(study, overrides=["stages.path.scale=2.0"]).run.tables
    assert {name for name, table in changed.items() if "nodes" in table} == {"path"}
    back = curvflow.run(study).run.tables
    assert all("nodes" not in table for table in back.values())
    values = [
        float(curvflow.open(study, run=n)["path"]["square"].values.flat[0])
        for n in (1, 2, 3)
    ]
    assert values == [3.0, 2.0, 3.0]


def test_an_earlier_run_opens_without_a_kind_that_is_there_no_more(study):
    curvflow.run(study)
    study.write_text(STUDY.partition("  path:")[0])
    with mock.patch.dict(kinds._added):
        del kinds._added["toy.mean"]
        earlier = curvflow.open(study, run=1)
        assert earlier["last"]["square"].shape == (3, 2)
        with pytest.raises(UnknownNameError, match=r"expected a kind, got 'toy.mean'"):
            earlier["mean"]


def test_epochs_ascend_whatever_the_first_node_has(study):
    text = STUDY.replace('"${rule.lr}"', '"${rule.lr}", every: "${rule.every}"')
    text = text.replace("lr: 0.25}", "lr: 0.25, every: 4}")
    study.write_text(text.replace("lr: 0.75}", "lr: 0.75, every: 1}"))
    assert curvflow.run(study)["path"]["epoch"].values.tolist() == [0, 1, 2, 3, 4]


def test_labels_that_python_holds_equal_are_distinguished():
    view = View("s", "toy.probe", ("a",), [(1,), (True,), (0.5,)], [None] * 3)
    ds = Results("toys", {"s": view}, MemoryStore())["s"]
    assert [repr(label) for label in ds["a"].values] == ["1", "True", "0.5"]
    assert ds["status"].shape == (3,)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("true", [True]), ("1e-3", [0.001]), ("0.001", [0.001]), ("1", [1]), ("x", ["x"])],
)
def test_labels_are_requested_as_yaml_writes_them(text, kept):
    points = [(True,), (0.001,), (1,), ("x",)]
    view = View("s", "toy.probe", ("a",), points, [None] * 4).where({"a": text})
    assert [repr(label) for (label,) in view.points] == [repr(k) for k in kept]


def test_a_result_struck_off_during_the_run_stands_in_its_tables(tmp_path):
    mine, theirs = (open_store(tmp_path / "store", create=True) for _ in range(2))
    key = run(mine).plan.graph.nodes["data"][0].key
    begin = mine.begin_run

    def begin_run(*args, **options):
        theirs.retire([key], "somebody else found it torn")
        return begin(*args, **options)

    with mock.patch.object(mine, "begin_run", begin_run):
        again = run(mine)
    # The run took it before, so the run's own tables still show it.
    assert run_views(again.record, theirs.index())["data"].counts() == {"ok": 1}
    assert key not in theirs.index().receipts


def test_a_receipt_that_the_log_does_not_know_is_written_as_missing(store):
    views = plan_views(run(store).plan)
    tables = run_tables({"data": views["data"]}, Index())
    assert tables["data"]["nodes"] == [[[], None, "missing"]]


def test_diverged_nodes_keep_what_they_have(study):
    rule = "axes.rule={slow: {lr: 0.25}, wild: {lr: 9.0}}"
    results = curvflow.run(study, overrides=[rule])
    wild = results["fit"].sel(rule="wild")
    assert (wild["status"] == "diverged").all()
    assert np.isfinite(wild["loss"].values).sum(axis=1).tolist() == [2, 2, 2]
    assert np.isnan(results["last"]["square"].sel(rule="wild")).all()


def test_results_at_a_label_lose_the_axis_and_those_at_several_keep_it(study):
    results = curvflow.run(study)
    fast = results.sel(rule="fast")
    assert fast["last"]["square"].dims == ("seed",)
    assert str(fast["last"]["rule"].values) == "fast"
    xr.testing.assert_equal(fast["path"], results["path"].sel(rule="fast"))
    assert fast["data"].sizes == results["data"].sizes
    two = results.sel(seed=np.arange(2), rule=["fast"])
    xr.testing.assert_equal(
        two["last"], results["last"].sel(seed=[0, 1], rule=["fast"])
    )
    assert fast.sel(seed=2)["last"]["square"].dims == ()
    assert {row["rule"] for row in fast.records("last")} == {"fast"}
    assert fast.run is results.run
    assert fast.tree["last"]["square"].dims == ("seed",)


def test_stages_without_any_of_the_labels_are_left_out(study):
    extra = "stages.late={use: toy.probe, weights: fit, at: [2]}"
    results = curvflow.run(study, overrides=[extra])
    assert list(results.sel(epoch=2)) == [*results]
    assert list(results.sel(epoch=4)) == ["data", "fit", "last", "path", "mean"]
    assert results.sel(epoch=4)["path"]["square"].dims == ("seed", "rule")


def test_labels_and_axes_that_no_stage_has_are_refused_with_the_nearest(study):
    results = curvflow.open(study)
    with pytest.raises(UnknownNameError, match=r"its labels, got 'fats'.*'fast'"):
        results.sel(rule="fats")
    with pytest.raises(
        UnknownNameError, match=r"axis of its stages, got 'rul'.*'rule'"
    ):
        results.sel(rul="fast")
    with pytest.raises(UnknownNameError, match=r"Known: 0, 1, 2"):
        results.sel(seed=[0, 7])


def test_a_label_that_is_written_so_comes_before_one_that_means_the_same():
    view = View("s", "toy.probe", ("a",), [(1.0,), ("1",), (True,)], [None] * 3)
    assert [p for (p,) in view.where({"a": "1"}).points] == ["1"]
    assert [p for (p,) in view.where({"a": ["1.0", "true"]}).points] == [1.0, True]


def test_a_dataframe_has_a_row_per_record_and_the_units(study):
    frame = curvflow.run(study).sel(rule="slow").to_dataframe("last")
    assert [*frame.columns] == ["seed", "rule", "status", "square", "seconds"]
    assert frame["square"].tolist() == pytest.approx(
        [(s * 0.75**4) ** 2 for s in (1, 2, 3)], rel=1e-12
    )
    assert frame.attrs["units"]["square"] == "weight^2"


def test_a_dataframe_of_series_has_the_variables_requested(study):
    results = curvflow.run(study, overrides=["axes.seed=[1, 13]"])
    frame = results.to_dataframe("fit", ["loss", "final"])
    assert len(frame) == 2 * (1 + 5) + 2
    assert frame["final"].notna().sum() == 2
    assert (frame["status"] == "failed").sum() == 2
    with pytest.raises(UnknownNameError, match="got 'los'"):
        results.to_dataframe("fit", ["los"])


def test_notebooks_show_the_stages_with_their_counts(study):
    results = curvflow.run(study, overrides=["axes.seed=[1, 13]"])
    html = results._repr_html_()
    assert html.startswith("<div><b>Results</b> of run 1 of toys<table>")
    for cell in ("toy.fit", "seed: 2, rule: 2", "2 ok, 2 failed"):
        assert f">{cell}</td>" in html
    assert ">seed = 13, rule: 2</td>" in results.sel(seed=13)._repr_html_()
    odd = View("s<", "toy.probe", ("a",), [("<b>",)], [None])
    named = Results("a&b", {"s<": odd}, MemoryStore()).sel(a="<b>")._repr_html_()
    for text in ("a&amp;b", "s&lt;", "a = &lt;b&gt;", "1 missing"):
        assert text in named


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


def test_failures_are_reported_where_nobody_watches(study, caplog):
    results = curvflow.run(study, overrides=["axes.seed=[1, 13]"])
    assert "2 nodes failed" in caplog.text
    assert "2 nodes failed" in repr(results)
    assert (results["fit"]["status"].sel(seed=13) == "failed").all()


def test_unknown_stages_and_runs_are_named(study):
    results = curvflow.run(study)
    with pytest.raises(UnknownNameError, match=r"got 'fitt'.*'fit'"):
        results["fitt"]
    with pytest.raises(UnknownNameError, match=r"from 1 to 1, got 9"):
        curvflow.open(study, run=9)
    assert issubclass(UnknownNameError, CurvflowError)


def test_the_door_offers_what_it_lists():
    for name in curvflow.__all__:
        assert getattr(curvflow, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = curvflow.runn
