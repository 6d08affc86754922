"""Two runs of a study side by side."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvflow.errors import UnknownNameError
from curvflow.flows.results.diff import diff_runs
from curvflow.schemas import kinds
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import run


def difference(store, before, after, **options):
    runs = store.index().runs
    stages = diff_runs(runs[before - 1], runs[after - 1], store, **options)
    return {stage_diff.stage: stage_diff for stage_diff in stages}


def test_stages_are_counted_by_verdict(store):
    run(store)
    run(store, "stages.last.scale=2.0", "axes.seed=[0, 1, 5]")
    stages = difference(store, 1, 2)
    assert stages["data"].counts == {"same": 1}
    assert stages["fit"].counts == {"same": 4, "added": 2, "removed": 2}
    assert stages["last"].counts == {"changed": 4, "added": 2, "removed": 2}
    assert stages["mean"].counts == {"changed": 2}


def test_the_largest_differences_are_reported_per_variable(store):
    run(store)
    run(store, "stages.last.scale=2.0")
    (row,) = difference(store, 1, 2)["last"].variables
    assert (row["variable"], row["units"], row["nodes"]) == ("square", "weight^2", 6)
    assert row["relative"] == pytest.approx(0.5)
    assert row["absolute"] == pytest.approx((3 * 0.75**4) ** 2)
    assert row["at"] == {"seed": 2, "rule": "slow"}
    assert difference(store, 1, 2, rtol=0.6)["last"].variables == []


def test_tables_are_compared_row_by_row(store):
    run(store)
    run(store, "stages.last.scale=2.0")
    rows = difference(store, 1, 2)["mean"].rows
    assert {(r["labels"]["rule"], r["statistic"]) for r in rows} == {
        ("slow", "mean"),
        ("fast", "mean"),
    }
    assert all(r["difference"] == pytest.approx(r["new"] - r["old"]) for r in rows)


def test_results_computed_again_and_equal_are_distinguished_from_the_same(store):
    run(store)
    keys = [r.key for r in store.index().receipts.values() if r.kind == "toy.fit"]
    store.retire(keys, "to be computed again")
    run(store)
    stages = difference(store, 1, 2)
    assert stages["fit"].counts == {"recomputed": 6}
    assert stages["last"].counts == {"same": 6}


def test_arrays_that_are_gone_leave_the_verdict(store):
    run(store)
    run(store, "stages.last.scale=2.0")
    (node,) = {
        r.payload for r in store.index().rows.values() if r.params.get("scale") == 2.0
    }
    del store._payloads[node]
    stages = difference(store, 1, 2)["last"]
    assert (stages.counts["changed"], stages.gone, stages.variables) == (6, 6, [])


def test_a_kind_that_is_unknown_now_is_compared_by_digests(store, monkeypatch):
    run(store)
    run(store, "stages.last.scale=2.0")
    monkeypatch.delitem(kinds._added, "toy.probe")
    stages = difference(store, 1, 2)["last"]
    assert stages.variables == [{"variable": "square", "nodes": 6}]


def test_a_stage_of_neither_run_is_refused(store):
    run(store)
    with pytest.raises(UnknownNameError, match="got 'lest'"):
        difference(store, 1, 1, stages=["lest"])


OVERRIDES = (
    "stages.last.scale=2.0",
    "axes.seed=2",
    "stages.data.count=8",
    "stages.fit.epochs=2",
    "axes.rule.fast.lr=3.0",
)
CHANGES = st.lists(st.sampled_from(OVERRIDES), unique=True, max_size=3)


@settings(max_examples=10, deadline=None)
@given(before=CHANGES, after=CHANGES)
def test_a_difference_the_other_way_round_is_its_opposite(before, after):
    store = MemoryStore()
    run(store, *before)
    run(store, *after)
    there, back = difference(store, 1, 2), difference(store, 2, 1)
    for stage, stage_diff in there.items():
        other = back[stage]
        assert stage_diff.counts["added"] == other.counts["removed"]
        for verdict in ("changed", "recomputed", "same"):
            assert stage_diff.counts[verdict] == other.counts[verdict]
        sizes = [
            (v["variable"], v["absolute"], v["relative"]) for v in stage_diff.variables
        ]
        assert sizes == [
            (v["variable"], v["absolute"], v["relative"]) for v in other.variables
        ]
        # As text, since NaN is not even equal to itself.
        assert sorted(
            str([r["labels"], r["old"], r["new"]]) for r in stage_diff.rows
        ) == (sorted(str([r["labels"], r["new"], r["old"]]) for r in other.rows))
    same = difference(store, 2, 2)
    assert all(set(stage_diff.counts) <= {"same"} for stage_diff in same.values())
