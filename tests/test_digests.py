"""Two trees are compared result by result; what was raised on purpose stands apart."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import curvflow
from benchmarks import digests
from benchmarks.digests import Ledger, entries, judged, reasons
from curvflow.schemas.kinds import find_kind

TRACE = find_kind("probe.hessian_trace")
STUDY = """\
study: ledger
axes:
  seed: 2
stages:
  data:
    use: data.xor
  fit:
    use: train
    data: data
    model: {kind: mlp, hidden: [3]}
    rule: {rule: sgd, lr: 0.1}
    seed: "${seed}"
    epochs: 1
  trace:
    use: probe.hessian_trace
    weights: fit
    num_probes: 6
  table:
    use: aggregate.summary
    of: trace
    over: seed
    quantities: [trace]
profiles:
  smoke: {}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "study.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        curvflow.run(folder / "study.yaml", profile="smoke", store=folder / "store")
    return folder


@pytest.fixture
def after(folder):
    return digests.planned(folder / "study.yaml", folder / "store")


@pytest.fixture
def before(folder):
    return {r.stage + str(r.coords.get("seed", "")): r for r in all_of(folder)}


def all_of(folder):
    return digests.receipts(folder / "store")


def earlier_trace(before, **changes):
    """Make one trace that of an earlier tree, and tell the table of its digest."""
    table = before["table"]
    rows = [
        [*row[:3], "0" * 64] if row[1] == {"seed": 1} else row
        for row in table.inputs["of"]
    ]
    before["trace1"] = replace(before["trace1"], key="a" * 64, **changes)
    before["table"] = replace(table, key="b" * 64, inputs={"of": rows}, digest="c")


def outcomes(after, before):
    ledger = Ledger()
    return judged(after, before.values(), ledger), ledger


def test_equal_stores_hold_the_same(after, before):
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=6, differs=0)
    assert not ledger.faults
    assert not ledger.raised


def test_a_later_version_is_listed_and_what_takes_its_result_follows(after, before):
    parts = before["trace1"].parts | {"trace_sem": "other"}
    earlier_trace(before, version=2, parts=parts)
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=4, raised=1, follows=1)
    assert not ledger.faults
    ((change, raised),) = ledger.raised.items()
    assert change == (TRACE.name, 2, TRACE.version)
    assert (raised.results, raised.parts, raised.params) == (1, {"trace_sem"}, set())


def test_another_input_without_a_later_version_is_a_fault_downstream_too(after, before):
    earlier_trace(before, inputs=before["trace1"].inputs | {"weights": "d" * 64})
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=4, differs=2)
    assert [fault.partition(":")[0] for fault in ledger.faults] == [
        "trace[seed=1]",
        "table",
    ]


def test_what_follows_may_have_no_other_parameters(after, before):
    earlier_trace(before, version=2)
    before["table"] = replace(before["table"], params={"quantities": ["trace_sem"]})
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=4, raised=1, differs=1)
    assert "quantities" in ledger.faults[0]


def test_what_follows_takes_the_same_nodes(after, before):
    earlier_trace(before, version=2)
    rows = before["table"].inputs["of"][1:]
    before["table"] = replace(before["table"], inputs={"of": rows})
    assert outcomes(after, before)[0] == Counter(same=4, raised=1, differs=1)


def test_an_earlier_version_is_a_fault(after, before):
    earlier_trace(before, version=TRACE.version + 1)
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=4, differs=2)
    assert "earlier version" in ledger.faults[0]


@pytest.mark.parametrize("change", [{"digest": "e"}, {"status": "diverged"}])
def test_another_digest_or_status_under_one_key_is_a_fault(after, before, change):
    before["fit0"] = replace(before["fit0"], **change)
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=5, differs=1)
    assert "one key" in ledger.faults[0]


def test_a_result_of_one_tree_alone_is_a_fault(after, before):
    del before["trace0"]
    before["more"] = replace(before["fit0"], stage="more", key="f" * 64)
    counts, ledger = outcomes(after, before)
    assert counts == Counter(same=5, differs=2)
    assert len(ledger.faults) == 2


def test_a_version_is_named_by_an_entry_of_its_kind_alone(tmp_path):
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "+a.changed.md").write_text("`probe.a` (version 3) is new.")
    log = "# Changelog\n\n- `probe.a` (version 2)\n  counts.\n- `probe.b` has others.\n"
    (tmp_path / "CHANGELOG.md").write_text(log)
    texts = entries(tmp_path)
    assert reasons("probe.a", 1, 3, texts) == {
        2: "`probe.a` (version 2) counts.",
        3: "`probe.a` (version 3) is new.",
    }
    assert reasons("probe.b", 1, 2, texts) == {2: ""}


def test_the_change_log_names_every_version_since_the_first_comparison():
    ledger = Ledger(raised={change: digests.Raise() for change in SINCE_5D358AF})
    digests.name_versions(ledger, entries(digests.ROOT))
    assert not ledger.faults


# Kinds whose version was raised since, as `benchmarks/README.md` lists them.
SINCE_5D358AF = (
    ("aggregate.coverage", 1, 3),
    ("figure.density", 3, 4),
    ("figure.lines", 3, 4),
    ("figure.scatter", 3, 4),
    ("probe.effective_dimension", 1, 3),
    ("probe.free_energy", 2, 4),
    ("probe.gradient_variance", 1, 2),
    ("probe.hessian_trace", 2, 3),
    ("probe.hessian_variance", 2, 3),
    ("probe.llc", 4, 7),
    ("probe.llc_regular", 2, 4),
    ("probe.logdet", 2, 5),
    ("probe.moments", 2, 3),
    ("probe.spectrum", 2, 3),
    ("probe.trace", 2, 4),
    ("probe.wbic", 2, 3),
)


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """Return two trees with one study, whose runs all end as the test says."""
    for side in ("before", "after"):
        (tmp_path / side / "studies").mkdir(parents=True)
        (tmp_path / side / "studies" / "study.yaml").write_text(STUDY)
    monkeypatch.setattr(digests, "ROOT", tmp_path / "after")
    monkeypatch.setattr(digests, "entries", lambda tree: [])
    return tmp_path


def compared(trees: Path, *options: str) -> int:
    return digests.main(["--before", str(trees / "before"), *options])


def test_two_runs_that_fail_alike_are_a_failure(trees, monkeypatch, capsys):
    monkeypatch.setattr(digests, "run", lambda *_: "exit 1, no such kind")
    assert compared(trees) == 1
    told = capsys.readouterr().out
    assert "the run before failed: exit 1, no such kind" in told
    assert "the store after is empty" in told


def test_empty_stores_are_a_failure_though_no_run_fails(trees, monkeypatch, capsys):
    monkeypatch.setattr(digests, "run", lambda *_: "")
    assert compared(trees) == 1
    assert "the store before is empty" in capsys.readouterr().out


def test_a_choice_of_no_study_is_a_failure(trees, capsys):
    assert compared(trees, "--only", "nothing") == 1
    assert "no study" in capsys.readouterr().out


def test_what_is_kept_is_compared_without_a_run(trees, folder, capsys):
    keep = trees / "kept"
    for side in ("before", "after"):
        store = keep / side / "studies" / "study.yaml"
        store.parent.mkdir(parents=True)
        store.symlink_to(folder / "store")
        store.with_name("study.yaml.done").touch()
    assert compared(trees, "--keep", str(keep)) == 0
    assert "6 same, 0 raised, 0 follow, 0 differ" in capsys.readouterr().out
