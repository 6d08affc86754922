"""Edits of a user's project, and what `curvflow run` says of them."""

import json
import shutil
import sys
from dataclasses import dataclass
from unittest import mock

import pytest

import curvflow as door
from curvflow.schemas import kinds
from curvflow.stores.open import open_store
from curvflow.tasks import registry

STUDY = """\
study: lab
axes: {seed: 3}
stages:
  points: {use: data.factory, factory: "lab_points:make"}
  fit: {use: train, data: points, model: {factory: "lab_nets:make"},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 2}
  size: {use: "lab_mine:size", weights: fit}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: size, over: seed}
"""

FILES = {
    "lab.yaml": STUDY,
    "lab_mine.py": '''
"""Kinds of the laboratory."""
import numpy as np
from curvflow import Params, Variable, Weights, stage
from lab_near import scaled

OUTPUTS = (Variable("size", "a size"), Variable("sizes", "sizes", ("parameter",)))


class Nothing(Params):
    """Nothing to choose."""


@stage("probe.size", version=1, outputs=OUTPUTS)
def size(weights: Weights, params: Nothing) -> dict[str, object]:
    """Measure the size."""
    values = abs(weights["weights"].ravel())  # of all
    return {"size": np.asarray(scaled(values.sum())), "sizes": values}


@stage("probe.unused", version=1, outputs=OUTPUTS)
def unused(weights: Weights) -> dict[str, object]:
    return {"size": np.asarray(0.0), "sizes": np.zeros(1)}


def unrelated(x):
    return x + 1
''',
    "lab_near.py": "import lab_middle\n\n\ndef scaled(x):\n"
    "    return 2.0 * lab_middle.weighed(x)\n",
    "lab_middle.py": "from lab_far import tare\n\n\ndef weighed(x):\n"
    "    return tare(x) + 1.0\n",
    "lab_far.py": "LIMIT = 1000.0\n\n\ndef tare(x):\n    return min(x, LIMIT)\n",
    "lab_nets.py": "import torch\n\n\ndef make():\n    return torch.nn.Linear(1, 2)\n",
    "lab_points.py": "import numpy as np\n\n\ndef make():\n"
    "    drawn = np.arange(4.0)\n    return drawn[:, None], np.arange(4) % 2\n",
}
KIND = '"probe.size", version=1'


def forget():
    """Unload the modules of the project, as a new process would not have them."""
    for name in [name for name in sys.modules if name.startswith("lab_")]:
        del sys.modules[name]
    for name in ("probe.size", "probe.unused"):
        kinds._added.pop(name, None)
        registry._implementations.pop(name, None)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    # Python takes an edit within a second that keeps the size for none.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    forget()


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """Return a project that has been run once."""
    folder = tmp_path_factory.mktemp("lab")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with (
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.object(sys, "dont_write_bytecode", True),
    ):
        door.run(folder / "lab.yaml")
    forget()
    return folder


@pytest.fixture
def lab(computed, tmp_path, monkeypatch):
    """Return a copy of it, and go there."""
    folder = tmp_path / "lab"
    shutil.copytree(computed, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return folder


def edit(lab, file, old, new):
    text = FILES[file]
    assert old in text
    (lab / file).write_text(text.replace(old, new))
    forget()


def executed(said):
    assert said.code == 0, said.err
    counts = json.loads(said.out)["executed"]
    return {stage: count for stage, count in counts.items() if count}


@dataclass(frozen=True)
class Edit:
    """A text put for another, and what is to be said of it: kind to its words."""

    name: str
    file: str
    old: str
    new: str
    says: dict[str, str]


def same(name, file, old, new):
    return Edit(name, f"lab_{file}.py", old, new, {})


WAY = "size > scaled > weighed > tare"
NETWORKS = ("train", "probe.size", "probe.norms")  # whoever runs the model
EDITS = [
    same("a comment", "mine", "  # of all", "  # of each\n    # of them"),
    same("a docstring", "mine", "Measure the size.", "Say how large it is."),
    same("a local name", "mine", "values", "found"),
    same("layout", "far", "min(x, LIMIT)", "min(\n        x,\n        LIMIT,\n    )"),
    same("an annotation", "far", "def tare(x)", "def tare(x: float) -> float"),
    same("an unrelated function", "mine", "return x + 1", "return x - 1"),
    same("a new function", "near", "def scaled",
         "def new():\n    pass\n\n\ndef scaled"),
    same("a kind that is not used", "mine", "asarray(0.0)", "asarray(1.0)"),
    Edit("the function", "lab_mine.py", "values.sum()", "values.max()",
         {"probe.size": "lab_mine:size changed. 3 nodes"}),
    Edit("a helper three modules away", "lab_far.py", "min(x, LIMIT)", "max(x, LIMIT)",
         {"probe.size": f"lab_far:tare changed (by {WAY}). 3 nodes"}),
    Edit("a constant", "lab_far.py", "1000.0", "1e3 + 1",
         {"probe.size": f"lab_far:LIMIT changed (by {WAY} > LIMIT). 3 nodes"}),
    Edit("a helper taken away", "lab_middle.py", "tare(x) + 1.0", "x + 1.0",
         {"probe.size": "lab_middle:weighed changed (by size > scaled > weighed); "
          "lab_far:LIMIT removed; lab_far:tare removed. 3 nodes"}),
    Edit("a model", "lab_nets.py", "Linear(1, 2)", "Linear(1, 2, bias=True)",
         dict.fromkeys(NETWORKS, "lab_nets:make changed")),
    Edit("data", "lab_points.py", "arange(4.0)", "arange(4.0) + 0",
         {"data.factory": "lab_points:make changed (by factory > make). 1 node"}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDITS, ids=lambda case: case.name)
def test_an_edit_stops_a_run_that_it_concerns_and_no_other(curvflow, lab, case):
    edit(lab, case.file, case.old, case.new)
    said = curvflow("run", "lab.yaml", "--json")
    plan = json.loads(curvflow("plan", "lab.yaml", "--json").out)
    assert {drift["kind"] for drift in plan["code"]} == set(case.says)
    if not case.says:
        assert executed(said) == {}
        assert said.err == ""
        return
    assert (said.code, said.out) == (2, "")
    *lines, remedy = said.err.removeprefix("curvflow: ").splitlines()
    for line, (kind, words) in zip(lines, case.says.items(), strict=True):
        version = kinds.find_kind(kind).version
        start = f"{kind}: expected the code that version {version} had, got another: "
        assert line.startswith(start)
        assert words in line
        assert line.endswith("to compute again.")
    assert "--accept-code" in remedy
    assert len(open_store(lab / ".curvflow", create=False).index().runs) == 1


def test_the_message_says_what_moved_whom_it_concerns_and_what_can_be_done(
    curvflow, lab
):
    edit(lab, "lab_far.py", "min(x", "max(x")
    assert curvflow("run", "lab.yaml").err == (
        "curvflow: probe.size: expected the code that version 1 had, got another: "
        "lab_far:tare changed (by size > scaled > weighed > tare). 3 nodes concerned, "
        "under 1 s to compute again.\n"
        "If the results mean something else now, raise the version of the kind. If "
        'not, run again with --accept-code probe.size --reason "..." (--verify 2% '
        "compares a sample first), or with --rerun probe.size.\n"
    )


def test_a_raised_version_runs_anew_and_says_nothing(curvflow, lab):
    edit(lab, "lab_mine.py", KIND, '"probe.size", version=2')
    text = (lab / "lab_mine.py").read_text()
    (lab / "lab_mine.py").write_text(text.replace("values.sum()", "values.max()"))
    said = curvflow("run", "lab.yaml", "--json")
    assert executed(said) == {"size": 3, "table": 1}
    assert said.err == ""


def test_nodes_without_results_run_with_the_code_as_it_is(curvflow, lab):
    edit(lab, "lab_mine.py", "values.sum()", "values.max()")
    new = ("run", "lab.yaml", "--json", "--set", "axes.seed=[7, 8]")
    said = curvflow(*new)
    assert executed(said)["size"] == 2
    assert said.err == ""
    grown = curvflow("run", "lab.yaml", "--set", "axes.seed=[0, 7]")
    assert grown.code == 2
    assert "1 node concerned" in grown.err


def test_another_study_in_the_same_store_is_not_stopped(curvflow, lab):
    edit(lab, "lab_mine.py", "values.sum()", "values.max()")
    small = "study: small\nstages:\n" + STUDY.partition("stages:\n")[2]
    small = small.partition("  size:")[0].replace('seed: "${seed}", ', "")
    (lab / "small.yaml").write_text(small)
    said = curvflow("run", "small.yaml", "--json")
    assert executed(said) == {}
    assert said.err == ""


def test_accepted_code_goes_on_in_the_same_command_and_is_not_requested_again(
    curvflow, lab
):
    edit(lab, "lab_mine.py", "values.sum()", "sum(values)")
    said = curvflow(
        *("run", "lab.yaml", "--json", "--set", "axes.seed=4"),
        *("--accept-code", "probe.size", "--reason", "only another way to add"),
    )
    assert executed(said)["size"] == 1
    assert said.err == "curvflow: probe.size: code accepted for 3 results\n"
    again = curvflow("run", "lab.yaml", "--json")
    assert executed(again) == {}
    assert again.err == ""
    (settled,) = open_store(lab / ".curvflow", create=False).index().settlements
    assert settled.reason == "only another way to add"


def test_accepting_what_has_not_changed_does_nothing_and_says_so(curvflow, lab):
    asked = ("--accept-code", "probe.size", "--reason", "as it was")
    said = curvflow("run", "lab.yaml", "--json", *asked, "--verify", "100%")
    assert executed(said) == {}
    assert said.err == (
        "curvflow: probe.size: its code is as it was, there is nothing to accept\n"
    )
    assert open_store(lab / ".curvflow", create=False).index().settlements == []


def test_a_sample_that_comes_out_equal_is_evidence(curvflow, lab):
    edit(lab, "lab_far.py", "min(x, LIMIT)", "LIMIT if x > LIMIT else x")
    said = curvflow(
        *("run", "lab.yaml", "--json", "--accept-code", "probe.size"),
        *("--reason", "spelt out", "--verify", "50%"),
    )
    assert executed(said) == {}
    assert said.err.splitlines() == [
        "curvflow: probe.size: computing 2 of 3 results again",
        "curvflow: probe.size: code accepted for 3 results; 2 computed again, 2 equal",
    ]


def test_a_sample_that_differs_is_refused_with_its_number(curvflow, lab):
    edit(lab, "lab_middle.py", "tare(x) + 1.0", "tare(x) + 1.5")
    asked = ("--accept-code", "probe.size", "--reason", "x", "--verify", "100%")
    said = curvflow("run", "lab.yaml", *asked)
    assert (said.code, said.out) == (2, "")
    last = said.err.splitlines()[-1]
    assert last.startswith(
        "curvflow: --accept-code probe.size: expected 3 results to come out the same, "
        "got 0 equal; size of size[seed="
    )
    assert "relative difference " in last
    assert open_store(lab / ".curvflow", create=False).index().settlements == []
    assert curvflow("run", "lab.yaml").code == 2


def test_a_sample_that_raises_is_refused_with_its_error(curvflow, lab):
    edit(lab, "lab_far.py", "min(x, LIMIT)", "min(x, LIMIT)[0]")
    asked = ("--accept-code", "probe.size", "--reason", "x", "--verify", "1%")
    said = curvflow("run", "lab.yaml", *asked)
    assert said.code == 2
    assert "size[seed=" in said.err
    assert "IndexError: invalid index to scalar variable" in said.err
    assert "inf" not in said.err


def test_trained_networks_can_be_verified(curvflow, lab):
    edit(lab, "lab_nets.py", "Linear(1, 2)", "Linear(1, 2, bias=True)")
    each = [("--accept-code", kind) for kind in NETWORKS]
    said = curvflow(
        *("run", "lab.yaml", "--json", "--reason", "spelt out", "--verify", "0.4"),
        *(word for pair in each for word in pair),
    )
    assert executed(said) == {}
    assert said.err.count("2 computed again, 2 equal") == 3


def test_all_kinds_are_compared_before_any_is_accepted(curvflow, lab):
    edit(lab, "lab_nets.py", "Linear(1, 2)", "Linear(1, 2, bias=True)")
    mine = FILES["lab_mine.py"].replace("values.sum()", "values.max()")
    (lab / "lab_mine.py").write_text(mine)
    each = [("--accept-code", kind) for kind in ("train", "probe.norms", "probe.size")]
    said = curvflow(
        *("run", "lab.yaml", "--reason", "spelt out", "--verify", "100%"),
        *(word for pair in each for word in pair),
    )
    assert said.code == 2
    assert "--accept-code probe.size: " in said.err
    assert open_store(lab / ".curvflow", create=False).index().settlements == []


def test_only_what_is_concerned_runs_again_and_equal_results_stop_there(curvflow, lab):
    edit(lab, "lab_mine.py", "values.sum()", "sum(values)")
    curvflow("run", "lab.yaml", "--set", "axes.seed=[3]")
    said = curvflow(
        *("run", "lab.yaml", "--json", "--set", "axes.seed=4"),
        *("--rerun", "probe.size"),
    )
    # Of four, one is of the code as it is; the table of four is new anyway.
    assert executed(said) == {"size": 3, "table": 1}
    assert said.err == ""


def test_consumers_of_what_comes_out_equal_stay_and_history_stands(curvflow, lab):
    edit(lab, "lab_near.py", "2.0 * lab_middle.weighed(x)", "lab_middle.weighed(x) * 2")
    said = curvflow("run", "lab.yaml", "--json", "--rerun", "probe.size")
    assert executed(said) == {"size": 3}
    forget()
    edit(lab, "lab_near.py", "2.0 *", "3.0 *")
    before = curvflow("show", "lab.yaml", "size", "--json", "--run", "1").out
    said = curvflow("run", "lab.yaml", "--json", "--rerun", "probe.size")
    assert executed(said) == {"size": 3, "table": 1}
    after = curvflow("show", "lab.yaml", "size", "--json", "--run", "1").out
    assert after == before
    assert curvflow("show", "lab.yaml", "size", "--json").out != before


def test_a_kind_may_be_named_as_the_study_names_it(curvflow, lab):
    again = curvflow("run", "lab.yaml", "--json", "--rerun", "lab_mine:size")
    assert executed(again) == {"size": 3}
    edit(lab, "lab_mine.py", "values.sum()", "sum(values)")
    asked = ("--accept-code", "lab_mine:size", "--reason", "only another way to add")
    said = curvflow("run", "lab.yaml", "--json", *asked)
    assert executed(said) == {}
    assert said.err == "curvflow: probe.size: code accepted for 3 results\n"


def test_all_results_of_a_kind_run_again_where_no_code_has_changed(curvflow, lab):
    said = curvflow("run", "lab.yaml", "--json", "--rerun", "train")
    assert executed(said) == {"fit": 3}
    assert said.err == ""


REASON = ("--reason", "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accept-code", "probe.size"], "expected a reason, got none"),
        (["--accept-code", "probe.size", "--reason", " "], "expected a reason"),
        (["--accept-code", "probe.sise", *REASON], "Did you mean 'probe.size'?"),
        (["--rerun", "probe.hessian_trace"], "expected a kind of lab, got"),
        (["--accept-code", "train", "--rerun", "train", *REASON], "combined"),
        (["--rerun", "size"], "got 'size'. size is a stage; its kind is probe.size."),
        (["--verify", "2%"], "--verify: expected --accept-code KIND"),
        (REASON, "--reason: expected --accept-code KIND"),
        *(
            (["--accept-code", "train", *REASON, "--verify", share], "at most 100%")
            for share in ("0%", "2", "101%", "-1%", "2%%", "2%x", "nan", "few", "")
        ),
    ],
)
def test_a_wrong_answer_is_one_line_and_exit_code_2(curvflow, lab, arguments, message):
    said = curvflow("run", "lab.yaml", *arguments)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_the_plan_says_what_moved_within_80_columns(curvflow, lab):
    edit(lab, "lab_far.py", "min(x", "max(x")
    lines = curvflow("plan", "lab.yaml").out.splitlines()
    at = next(number for number, line in enumerate(lines) if "  code  " in line)
    assert lines[at] == "  code     probe.size: lab_far:tare changed"
    answer = f"by {WAY}; 3 nodes concerned; under 1 s"
    assert lines[at + 1].strip() == answer
    assert "nothing to do; run asks what changed code means" in lines[at + 2]
    assert max(map(len, lines)) <= 80


def test_why_says_that_code_has_changed_as_the_plan_does(curvflow, lab):
    edit(lab, "lab_far.py", "min(x", "max(x")
    block = curvflow("plan", "lab.yaml").out.splitlines()
    out = curvflow("why", "lab.yaml").out
    assert "code     probe.size: lab_far:tare changed" in out
    assert set(out.splitlines()) <= set(block)
    (answer,) = json.loads(curvflow("why", "lab.yaml", "--json").out)
    assert (answer["cause"], answer["nodes"]) == ("code of probe.size", 3)


def test_why_says_of_a_done_node_that_its_code_has_changed(curvflow, lab):
    edit(lab, "lab_far.py", "min(x", "max(x")
    moved = f"lab_far:tare changed (by {WAY})"
    said = curvflow("why", "lab.yaml", "size[seed=1]")
    assert said.out == f"size[seed=1]: done, but its code has changed: {moved}\n"
    (answer,) = json.loads(curvflow("why", "lab.yaml", "size[seed=1]", "--json").out)
    assert answer["code"] == [moved]
    (other,) = json.loads(curvflow("why", "lab.yaml", "norms[seed=1]", "--json").out)
    assert other["code"] == []


def test_the_log_reports_what_was_accepted_and_why(curvflow, lab):
    edit(lab, "lab_far.py", "min(x, LIMIT)", "LIMIT if x > LIMIT else x")
    asked = ("--accept-code", "probe.size", "--reason", "spelt out", "--verify", "50%")
    curvflow("run", "lab.yaml", *asked)
    answer = " ".join(curvflow("log", "lab.yaml", "--all").out.split())
    assert (
        "accepted code of probe.size, version 1, 3 results: spelt out "
        "(2 of 3 computed again, 2 equal)"
    ) in answer
    (row,) = [
        row
        for row in json.loads(curvflow("log", "lab.yaml", "--all", "--json").out)
        if "event" in row
    ]
    assert row["event"] == "settled"
