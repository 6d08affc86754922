"""What a person says of changed code is carried out, kept, and holds."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import ChangedCodeError, RequestError, StoreError
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.recheck import Recheck
from curvflow.flows.run.settle import Answer, settle
from curvflow.tasks import registry
from curvflow.tasks.registry import Machine
from tests.flows import toys
from tests.flows.lab import accept, laboratory, rerun

SAME = ("scaled(x) + 1.0", "1.0 + scaled(x)")
CHANGED = ("scaled(x) + 1.0", "scaled(x) + 2.0")


@pytest.fixture
def lab(tmp_path, store):
    with laboratory(tmp_path, store) as lab_open:
        yield lab_open


@pytest.fixture
def edited(lab):
    """Return the project, run and then edited so that it means the same."""
    lab.run()
    lab.edit(*SAME)
    return lab


def test_what_was_accepted_is_written_down_once(edited, store):
    before = {r.key: r.code for r in store.index().receipts.values()}
    assert edited.executed(answer=accept("lab.measure")) == {}
    assert edited.executed(answer=accept("lab.measure")) == {}
    (settled,) = store.index().settlements
    assert (settled.kind, settled.reason) == ("lab.measure", "it means the same")
    assert settled.evidence == {}
    (pair,) = settled.pairs
    assert pair[0] in before.values()
    assert pair[1] not in before.values()
    assert edited.lines == [
        "lab.measure: its code is as it was, there is nothing to accept"
    ]


def test_accepting_holds_for_more_seeds_and_in_both_directions(edited):
    edited.run(answer=accept("lab.measure"))
    assert edited.executed("axes.seed=5") == {"measure": 2, "mean": 1}
    edited.back()
    assert edited.executed("axes.seed=5") == {}
    assert edited.executed("axes.seed=6") == {"measure": 1, "mean": 1}


def test_what_is_accepted_in_steps_is_the_same_as_the_first(edited):
    edited.run(answer=accept("lab.measure"))
    edited.edit("FACTOR * x", "x * FACTOR")
    edited.run(answer=accept("lab.measure"))
    edited.back()
    assert edited.executed() == {}
    edited.edit("FACTOR * x", "x * FACTOR")
    with pytest.raises(ChangedCodeError):  # of this mixture nobody has said anything
        edited.run()


def test_accepting_one_kind_says_nothing_of_another(edited, store):
    edited.edit('data["inputs"].sum()', 'data["inputs"].max()', "lab_kinds.py")
    with pytest.raises(ChangedCodeError, match=r"^lab\.other: "):
        edited.run(answer=accept("lab.measure"))
    assert store.index().settlements == []
    answer = Answer(accept=["lab.measure"], rerun=["lab.other"], reason="both")
    assert edited.executed(answer=answer) == {"other": 1}
    assert edited.executed() == {}


def test_a_sample_is_chosen_by_its_keys_and_recorded(edited, store):
    edited.run(answer=accept("lab.measure", verify=0.5))
    (settled,) = store.index().settlements
    assert settled.evidence == {
        "of": 3,
        "sampled": 2,
        "equal": 2,
        "largest_relative_difference": 0.0,
    }
    assert edited.lines == [
        "lab.measure: computing 2 of 3 results again",
        "lab.measure: code accepted for 3 results; 2 computed again, 2 equal",
    ]


def test_last_bits_may_differ_and_are_reported(lab, store):
    lab.run()
    lab.edit("FACTOR * x", "FACTOR * x * (1 + 1e-12)")
    lab.run(answer=accept("lab.measure", verify=1.0))
    evidence = store.index().settlements[0].evidence
    assert (evidence["sampled"], evidence["equal"]) == (3, 0)
    assert 1e-13 < evidence["largest_relative_difference"] < 1e-11
    assert lab.lines[-1].startswith(
        "lab.measure: code accepted for 3 results; 3 computed again, 0 equal, others "
        "within "
    )


SINGLE = {
    "a type": ('"values", ("sample",))', '"values", ("sample",), dtype="float32")'),
    "a setting": ("seed: int = 0", 'seed: int = 0\n    dtype: str = "float32"'),
}


@pytest.mark.parametrize("name", SINGLE)
def test_last_bits_of_single_precision_are_coarser(lab, store, name):
    many = '"value": many.sum(), "many": many}'
    kept = 'many.astype("float32")' if name == "a type" else "many"
    lab.edit(many, f'"value": 1.0, "many": {kept}}}', "lab_kinds.py")
    lab.edit(*SINGLE[name], "lab_kinds.py")
    lab.run()
    lab.edit("FACTOR * x", "FACTOR * x * (1 + 4e-7)")
    lab.run(answer=accept("lab.measure", verify=1.0))
    evidence = store.index().settlements[0].evidence
    assert 1e-7 < evidence["largest_relative_difference"] < 1e-6
    lab.edit("4e-7", "4e-6")
    with pytest.raises(RequestError, match=r"relative difference \d\.\de-06"):
        lab.run(answer=accept("lab.measure", verify=1.0))


def test_counts_of_single_precision_are_no_coarser(lab):
    lab.edit(
        '"values", ("sample",))',
        '"counts", ("sample",), dtype="int64")',
        "lab_kinds.py",
    )
    lab.edit(*SINGLE["a setting"], "lab_kinds.py")
    counts = '{"value": 1.0, "many": (0 * many).astype("int64") + 4_000_000}'
    lab.edit('{"value": many.sum(), "many": many}', counts, "lab_kinds.py")
    lab.run()
    lab.edit("4_000_000", "4_000_001", "lab_kinds.py")
    with pytest.raises(RequestError, match=r"relative difference 2\.5e-07"):
        lab.run(answer=accept("lab.measure", verify=1.0))


DIFFERENCES = {
    "a number": ("many * 1.0", "many * 1.5", "relative difference 5.0e-01"),
    "a digit": ("many * 1.0", "many * (1 + 1e-7)", "relative difference 1.0e-07"),
    "a number among zeros": ("0 * many", "0 * many + 1e-3", "difference 1.0e+00"),
    "NaN for a number": ("many", "many * np.nan", "NaN or infinity at other"),
    "a number for NaN": ("many * np.nan", "many", "NaN or infinity at other"),
    "a number for infinity": ("many / 0.0", "many", "NaN or infinity at other"),
    "a shape": ("many", "many[:2]", "of shape (2,) where it was (4,)"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_comes_out_different_is_refused(lab, store, name):
    before, after, text = DIFFERENCES[name]
    result = '{"value": 1.0, "many": np.asarray(MANY)}'
    old, new = result.replace("MANY", before), result.replace("MANY", after)
    lab.edit('{"value": many.sum(), "many": many}', old, "lab_kinds.py")
    with np.errstate(all="ignore"):
        lab.run()
        lab.edit(old, new, "lab_kinds.py")
        with pytest.raises(RequestError) as error:
            lab.run(answer=accept("lab.measure", verify=1.0))
    message = str(error.value)
    assert text in message
    assert "many of measure[seed=" in message
    assert "got 0 equal" in message
    assert "\n" not in message
    assert store.index().settlements == []


EQUAL = {
    "NaN": "many * np.nan",
    "infinities": "many / 0.0",
    "zeros": "0 * many",
    "one NaN": "np.where(many > 3, np.nan, many)",
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_no_number_compares_with_itself(lab, store, name):
    result = '{"value": VALUE, "many": np.asarray(MANY)}'.replace("MANY", EQUAL[name])
    old, new = result.replace("VALUE", "1.0"), result.replace("VALUE", "1.0 + 1e-12")
    lab.edit('{"value": many.sum(), "many": many}', old, "lab_kinds.py")
    with np.errstate(all="ignore"):
        lab.run()
        lab.edit(old, new, "lab_kinds.py")
        lab.edit("np.asarray", "1 * np.asarray", "lab_kinds.py")
        lab.run(answer=accept("lab.measure", verify=1.0))
    evidence = store.index().settlements[0].evidence
    assert 0 < evidence["largest_relative_difference"] < 1e-11


def test_diverged_results_compare_with_their_reason(lab, store):
    ok = '{"value": many.sum(), "many": many}'
    bad = 'Outcome({"many": many * np.nan}, "diverged", "at epoch 3")'
    lab.edit(ok, bad, "lab_kinds.py")
    lab.run()
    lab.edit(*SAME)
    lab.run(answer=accept("lab.measure", verify=1.0))
    assert store.index().settlements[0].evidence["equal"] == 3
    lab.edit("at epoch 3", "at epoch 4", "lab_kinds.py")
    with pytest.raises(RequestError) as error:
        lab.run(answer=accept("lab.measure", verify=1.0))
    text = "diverged (at epoch 4) where it was diverged (at epoch 3)"
    assert text in str(error.value)
    lab.edit(bad.replace("3", "4"), ok, "lab_kinds.py")
    with pytest.raises(RequestError, match="ok where it was diverged"):
        lab.run(answer=accept("lab.measure", verify=1.0))


def test_a_sample_that_raises_says_which_error(lab):
    lab.run()
    lab.edit("FACTOR * x", "FACTOR * x[9]")
    with pytest.raises(RequestError) as error:
        lab.run(answer=accept("lab.measure", verify=0.01))
    assert "measure[seed=" in str(error.value)
    assert "IndexError: index 9 is out of bounds" in str(error.value)
    assert "relative" not in str(error.value)


def remove(store, *coords, stage="measure"):
    """Remove arrays as collection does."""
    gone = {
        receipt.payload
        for receipt in store.index().receipts.values()
        if receipt.stage == stage and receipt.coords.get("seed") in (None, *coords)
    }
    store.evict(sorted(gone), "to make room")
    for payload in gone:
        del store._payloads[payload]


def split(lab):
    """Compute each seed in a payload of its own."""
    for seed in range(3):
        lab.run(f"axes.seed=[{seed}]")
    lab.run()


def test_results_whose_arrays_were_removed_are_left_out(lab, store):
    split(lab)
    remove(store, 0, 2)
    lab.edit(*SAME)
    lab.run(answer=accept("lab.measure", verify=1.0))
    evidence = store.index().settlements[0].evidence
    assert (evidence["of"], evidence["sampled"], evidence["equal"]) == (3, 1, 1)


def test_results_whose_inputs_were_removed_cannot_be_compared(lab, store):
    lab.run()
    remove(store, stage="points")
    lab.edit(*SAME)
    with pytest.raises(RequestError, match="whose arrays are there"):
        lab.run(answer=accept("lab.measure", verify=1.0))
    assert store.index().settlements == []
    assert lab.executed(answer=accept("lab.measure")) == {}


def test_a_stored_result_that_cannot_be_read_is_reported_as_such(lab, store):
    lab.run()
    for receipt in store.index().receipts.values():
        if receipt.stage == "measure":
            store._payloads[receipt.payload]["many"] *= 2
    lab.edit(*CHANGED)
    with pytest.raises(StoreError, match=r"^--verify: measure\[seed="):
        lab.run(answer=accept("lab.measure", verify=1.0))
    assert store.index().settlements == []


def depend_on_company(monkeypatch, kind, variable):
    real = registry.find(kind)

    def compute(members, machine):
        outcomes = real.compute(members, machine)
        for outcome in outcomes:
            outcome.arrays[variable] = outcome.arrays[variable] * (
                1 + 1e-3 * len(members)
            )
        return outcomes

    changed = replace(real, compute=compute)
    monkeypatch.setitem(registry._implementations, kind, changed)


def compared(store, stage, number, *overrides):
    opened = toys.opened(store, *overrides)
    plan = make_plan(opened.study, store, opened.files)
    recheck = Recheck(plan, store=store, files=opened.files, machine=Machine())
    return recheck.compare(plan.graph.nodes[stage][:number])


def test_a_sample_is_tried_in_the_company_that_it_was_computed_in(store, monkeypatch):
    depend_on_company(monkeypatch, "toy.fit", "final")
    toys.run(store)
    assert compared(store, "fit", 2).as_json() == {
        "sampled": 2,
        "equal": 2,
        "largest_relative_difference": 0.0,
    }
    assert not compared(store, "fit", 1, "axes.seed=2").is_good


def test_company_whose_inputs_are_gone_is_not_considered(store, monkeypatch):
    alone = toys.STUDY.partition("  last:")[0]
    toys.run(store, "axes.seed=[1, 2]", text=alone)
    toys.run(store, text=alone)
    depend_on_company(monkeypatch, "toy.probe", "square")
    toys.run(store)
    assert compared(store, "last", 1).is_good
    fits = [r for r in store.index().receipts.values() if r.stage == "fit"]
    (gone,) = {r.payload for r in fits if r.coords["seed"] == 1}
    store.evict([gone], "to make room")
    del store._payloads[gone]
    assert not compared(store, "last", 1).is_good


def test_a_variable_on_one_side_only_is_a_difference(lab):
    ok = 'Outcome({"value": many.sum(), "many": many}, "diverged", "why")'
    lab.edit('{"value": many.sum(), "many": many}', ok, "lab_kinds.py")
    lab.run()
    lab.edit('"many": many}, "div', '}, "div', "lab_kinds.py")
    with pytest.raises(RequestError, match="many on one side only"):
        lab.run(answer=accept("lab.measure", verify=1.0))


def test_what_is_verified_leaves_no_state_behind(edited, store):
    before = store.index().number
    edited.run(answer=accept("lab.measure", verify=1.0))
    assert (
        store.index().number == before + 4
    )  # the code, the settlement, and the run's two
    assert store.index().rows.keys() == store.index(before).rows.keys()


def test_only_concerned_results_run_again_and_the_log_says_why(edited, store):
    edited.run("axes.seed=[3]")
    assert edited.executed("axes.seed=4", answer=rerun("lab.measure")) == {
        "measure": 3,
        "mean": 1,
    }
    assert set(store.index().retired.values()) == {"rerun: asked for"}
    assert edited.executed("axes.seed=4") == {}


def test_equal_results_of_a_rerun_stop_there(edited):
    assert edited.executed(answer=rerun("lab.measure")) == {"measure": 3}


def test_other_results_of_a_rerun_go_on_to_their_consumers(lab):
    lab.run()
    lab.edit(*CHANGED)
    assert lab.executed(answer=rerun("lab.measure")) == {"measure": 3, "mean": 1}


def test_a_rerun_without_changes_takes_all_results_of_the_kind(lab):
    lab.run()
    assert lab.executed(answer=rerun("lab.measure")) == {"measure": 3}
    assert lab.executed(answer=rerun("lab.measure", "lab.measure")) == {"measure": 3}


def test_all_that_has_changed_runs_again_by_one_answer(edited):
    edited.edit('data["inputs"].sum()', 'data["inputs"].max()', "lab_kinds.py")
    with pytest.raises(ChangedCodeError, match=r"or with --rerun changed\.$"):
        edited.run()
    assert edited.executed(answer=rerun("changed")) == {"measure": 3, "other": 1}
    assert edited.executed(answer=rerun("changed")) == {}


def test_what_is_accepted_does_not_run_again_with_all_that_has_changed(edited):
    edited.edit('data["inputs"].sum()', 'data["inputs"].max()', "lab_kinds.py")
    answer = Answer(accept=["lab.measure"], rerun=["changed"], reason="the same sum")
    assert edited.executed(answer=answer) == {"other": 1}


def test_a_rerun_of_what_was_never_run_is_a_run(lab):
    assert lab.executed(answer=rerun("lab.measure"))["measure"] == 3


def test_a_rerun_spares_what_another_run_has_just_computed_again(lab, store):
    lab.run()
    plan = lab.plan()
    lab.run(answer=rerun("lab.measure"))
    index = store.index()
    settle(
        plan,
        rerun("lab.measure"),
        store=store,
        files=SourceFiles(lab.folder),
        machine=lambda: (Machine(), nullcontext()),
        tell=print,
    )
    assert store.index().receipts == index.receipts
