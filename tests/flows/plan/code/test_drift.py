"""Results are compared with the code of today, and only with code that made them."""

from functools import partial

import pytest

from curvflow.errors import ChangedCodeError
from curvflow.flows.plan.code import fingerprints
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.settle import Answer
from curvflow.flows.run.work import Publisher
from tests.flows import toys
from tests.flows.lab import accept, laboratory, rerun
from tests.flows.plan.code.project import copy_package

CHANGED = ("scaled(x) + 1.0", "scaled(x) + 2.0")
RULES = """
study: rules
axes:
  seed: 2
  rule: {sgd: {rule: sgd, lr: 0.1}, adam: {rule: adam, lr: 0.01}}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [2]}, rule: "${rule}",
        seed: "${seed}", epochs: 2}
  norms: {use: probe.norms, weights: fit}
"""
LONGER = "stages.fit.epochs=4"


@pytest.fixture
def lab(tmp_path, store):
    with laboratory(tmp_path, store) as lab_open:
        yield lab_open


def names(drift):
    return [(move.name, move.change) for move in drift.moves]


def test_a_drift_counts_nodes_and_names_what_moved_and_how_it_is_reached(lab):
    lab.run()
    assert lab.drifts() == {}
    lab.edit("FACTOR = 2.0", "FACTOR = 3.0")
    (drift,) = lab.plan().drifts
    assert drift.as_json() == {
        "kind": "lab.measure",
        "version": 1,
        "nodes": 3,
        "predicted_seconds": drift.cost.seconds,
        "moved": [
            {
                "name": "lab_help:FACTOR",
                "change": "changed",
                "path": (
                    "lab_kinds:measure",
                    "lab_help:measured",
                    "lab_help:scaled",
                    "lab_help:FACTOR",
                ),
            }
        ],
    }
    assert drift.cost.seconds > 0


def test_untouched_files_are_compared_by_their_bytes_and_not_read_as_code(
    lab, monkeypatch
):
    lab.run()

    def refuse(*_):
        raise AssertionError("parsed")

    with monkeypatch.context() as patch:
        patch.setattr(Fingerprints, "of", refuse)
        assert lab.drifts() == {}
    lab.edit("FACTOR = 2.0", "FACTOR = 2.0  # a comment moves the file alone")
    assert lab.drifts() == {}
    lab.edit("FACTOR = 2.0", "FACTOR = 3.0")
    assert len(lab.plan().drifts) == 1


def test_a_record_names_the_modules_that_were_read(lab):
    lab.run()
    read = {
        name for record in lab.store.index().codes.values() for name in record.files
    }
    assert {"lab_kinds", "lab_help"} <= read


def test_what_is_gone_is_named_after_what_has_lost_it(lab):
    lab.run()
    lab.edit("return scaled(x) + 1.0", "return bent(x)")
    lab.edit("def scaled", "def bent")
    (drift,) = lab.plan().drifts
    assert names(drift) == [
        ("lab_help:measured", "changed"),
        ("lab_help:bent", "added"),
        ("lab_help:scaled", "removed"),
    ]


def test_two_kinds_at_once_are_both_reported(lab):
    lab.run()
    lab.edit(*CHANGED)
    lab.edit('data["inputs"].sum()', 'data["inputs"].max()', "lab_kinds.py")
    assert lab.drifts() == {"lab.measure": 3, "lab.other": 1}
    with pytest.raises(ChangedCodeError) as error:
        lab.run(answer=rerun("lab.measure"))
    assert str(error.value).startswith("lab.other: ")
    assert "lab.measure" not in str(error.value)


def test_results_made_before_code_was_recorded_are_not_compared(lab, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(Publisher, "_code", lambda *_: "")
        lab.run()
    lab.edit(*CHANGED)
    assert lab.drifts() == {}
    assert lab.executed() == {}
    assert lab.lines == []


def test_another_normal_form_is_not_compared(lab, monkeypatch):
    lab.run()
    lab.edit(*CHANGED)
    monkeypatch.setattr(fingerprints, "PROJECT_FORM", fingerprints.PROJECT_FORM + 1)
    assert lab.drifts() == {}


def test_after_accepting_only_what_is_new_is_reported(lab):
    lab.run()
    lab.edit("scaled(x) + 1.0", "1.0 + scaled(x)")
    lab.run("axes.seed=4", answer=accept("lab.measure"))
    lab.edit("FACTOR * x", "x * FACTOR")
    (drift,) = lab.plan("axes.seed=4").drifts
    assert len(drift.nodes) == 4
    assert len(drift.pairs) == 2
    assert names(drift) == [("lab_help:scaled", "changed")]


def test_what_stands_on_diverged_results_was_computed_by_no_code(lab):
    diverged = 'Outcome({"inputs": inputs / 0, "targets": inputs}, "diverged", "why")'
    lab.edit('{"inputs": inputs, "targets": inputs % 2}', diverged, "lab_kinds.py")
    lab.edit("np.arange(4.0)", "np.full(4, np.nan)", "lab_kinds.py")
    lab.edit("inputs / 0", "inputs", "lab_kinds.py")
    lab.run()
    lab.edit(*CHANGED)
    assert lab.drifts() == {}
    assert lab.executed() == {}


def test_lost_results_run_anyway(lab, store):
    lab.run()
    lab.edit(*CHANGED)
    for receipt in store.index().receipts.values():
        if receipt.kind == "lab.measure":
            store._payloads.pop(receipt.payload, None)
    assert lab.drifts() == {}
    assert lab.executed() == {"measure": 3, "mean": 1}


def test_a_kind_whose_source_is_unknown_is_not_compared(lab):
    receipts = lab.run().plan.index.receipts.values()
    assert {receipt.code for receipt in receipts if receipt.kind == "toy.mean"} <= {""}


def test_another_study_of_the_same_store_is_not_stopped(lab):
    lab.run()
    lab.edit(*CHANGED)
    without = toys.STUDY.replace("study: toys", "study: others")
    assert lab.drifts(text=without) == {}
    assert lab.executed(text=without)["fit"] == 6


def test_no_cost_is_predicted_while_nothing_has_moved(lab, monkeypatch):
    lab.run()

    def predicted(*_):
        raise AssertionError("the cost was asked for")

    monkeypatch.setattr(Costs, "of", predicted)
    assert lab.executed() == {}


def test_results_met_on_the_way_that_other_code_has_made_are_reported(lab):
    lab.run()
    lab.edit('"lab.points", version=1', '"lab.points", version=2', "lab_kinds.py")
    lab.edit(*CHANGED)
    assert lab.plan().counts("measure")["waiting"] == 3
    assert lab.executed() == {"points": 1}
    assert lab.lines == [
        "lab.measure: 3 nodes had results of other code under version 1; the next run "
        "asks what that means"
    ]
    assert lab.drifts() == {"lab.measure": 3}


def test_what_is_edited_while_a_run_is_at_work_is_not_taken_for_what_ran(lab):
    text = lab.files["lab_help.py"].replace(*CHANGED)
    name = str(lab.folder / "lab_help.py")
    write = f"pathlib.Path({name!r}).write_text({text!r})"
    lab.edit("inputs = np", f"import pathlib; {write}; inputs = np", "lab_kinds.py")
    assert lab.executed()["measure"] == 3
    assert lab.drifts() == {"lab.measure": 3}


def test_what_was_accepted_without_a_new_result_is_not_reported_again(lab):
    lab.run()
    lab.edit("scaled(x) + 1.0", "1.0 + scaled(x)")
    lab.run(answer=accept("lab.measure"))
    lab.edit("FACTOR * x", "x * FACTOR")
    (drift,) = lab.plan().drifts
    assert names(drift) == [("lab_help:scaled", "changed")]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a copy of this package whose code counts as the code of today."""
    folder = copy_package(tmp_path)
    of_copy = partial(Fingerprints, package=folder)
    monkeypatch.setattr("curvflow.flows.plan.plan.Fingerprints", of_copy)
    return folder


def change_adam(package):
    path = package / "tasks/rules/adaptive/adam.py"
    text = path.read_text()
    assert "zeros = torch.zeros_like(weights_MD)" in text
    path.write_text(text.replace("zeros = torch", "zeros = 0 + torch"))


def test_of_two_rules_only_nodes_of_the_one_that_changed_are_concerned(store, package):
    toys.run(store, text=RULES)
    change_adam(package)
    with pytest.raises(ChangedCodeError) as error:
        toys.run(store, text=RULES)
    assert "train: " in str(error.value)
    assert "curvflow.tasks.rules.adaptive.adam:init changed" in str(error.value)
    assert "2 nodes concerned" in str(error.value)


def test_training_goes_on_from_no_result_whose_code_has_moved(store, package, lab):
    toys.run(store, text=RULES)
    (before,) = lab.plan(LONGER, text=RULES).as_json()["stages"]["fit"]["continues"]
    assert before == {"param": "epochs", "from": 2, "to": 4, "nodes": 4}
    change_adam(package)
    plan = lab.plan(LONGER, text=RULES)
    assert plan.drifts == []
    going_on = {n.coords["rule"] for n in plan.graph.nodes["fit"] if n.shorter}
    assert going_on == {"sgd"}
    lab.run(text=RULES, answer=accept("train"))
    plan = lab.plan(LONGER, text=RULES)
    assert all(node.shorter for node in plan.graph.nodes["fit"])


def test_training_again_with_changed_code_begins_at_the_beginning(store, package, lab):
    toys.run(store, text=RULES)
    toys.run(store, LONGER, text=RULES)
    change_adam(package)
    run = lab.run(LONGER, text=RULES, answer=Answer(rerun=["train"]))
    assert run.record.counts["executed"]["fit"] == 2
    assert run.record.counts["executed"]["norms"] == 0
    (drift,) = lab.plan(text=RULES).drifts
    assert len(drift.nodes) == 2
    assert lab.plan(LONGER, text=RULES).drifts == []


def test_what_went_on_from_a_shorter_training_compares_with_one_go(store, package, lab):
    toys.run(store, text=RULES)
    toys.run(store, LONGER, text=RULES)
    change_adam(package)
    lab.run(LONGER, text=RULES, answer=accept("train", verify=1.0))
    evidence = store.index().settlements[0].evidence
    assert (evidence["sampled"], evidence["equal"]) == (2, 2)
