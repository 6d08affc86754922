"""Names in front of a line, and the pages that have them, within 80 columns."""

import pytest

from curvflow.cli.text.plan_text import plan_summary
from curvflow.cli.text.tables import name_columns

LONG = "a_stage_with_a_name_that_says_all_of_what_it_does"
STUDY = f"""
study: long
axes:
  axis: 2
stages:
  data: {{use: data.xor}}
  {LONG}: {{use: train, data: data, model: {{kind: mlp, hidden: [2]}}, epochs: 2,
    rule: {{rule: sgd, lr: 0.1}}, seed: "${{axis}}"}}
expect:
  - {{stage: {LONG}, where: {{axis: 0}}, quantity: final_train_loss,
      value: 0.25, within: [0, 123.5], source: nowhere}}
"""


def test_short_names_stand_in_columns_before_the_rest():
    assert name_columns([("stage", "kind"), ("a", "train")], 20) == [
        "stage  kind ",
        "a      train",
    ]


def test_a_long_name_stands_above_the_rest_of_its_line():
    rows = [("stage", "kind"), (LONG, "train"), ("short", "data.xor")]
    assert name_columns(rows, 60) == [
        "stage     kind    ",
        f"{LONG}\n          train   ",
        "short     data.xor",
    ]


@pytest.mark.parametrize("behind", range(0, 75, 5))
def test_no_line_is_longer_than_80_columns(behind):
    rows = [("stage", "kind"), ("x" * 40, "train"), ("s", "k")]
    fronts = name_columns(rows, behind)
    assert len({len(front.rpartition("\n")[2]) for front in fronts}) == 1
    lines = [line for front in fronts for line in (front + "y" * behind).splitlines()]
    assert max(map(len, lines)) <= max(80, 9 + behind)


@pytest.fixture
def long(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(STUDY)
    return path


def test_pages_of_a_study_with_long_names_fit_into_80_columns(curvflow, long):
    pages = [
        curvflow("plan", long),
        curvflow("run", long),
        curvflow("show", long),
        curvflow("check", long),
        curvflow("run", long, "--set", f"stages.{LONG}.epochs=3"),
        curvflow("diff", long),
    ]
    for page in pages:
        lines = page.out.splitlines()
        assert max(map(len, lines), default=99) <= 80, (page.out, page.err)
        assert LONG in page.out


def test_kinds_fit_into_80_columns(curvflow):
    lines = curvflow("kinds").out.splitlines()
    assert max(map(len, lines)) <= 80
    begun = [line for line in lines if not line.startswith(" ")]
    assert all(line[27] == " " != line[28] for line in begun)


def test_the_first_sentence_on_every_command_is_whole_in_the_list(curvflow):
    out = curvflow("--help").out
    commands = out.partition("Commands:\n")[2].splitlines()
    assert len(commands) > 15
    assert [line for line in commands if "..." in line] == []


def test_what_a_plan_says_of_the_whole_is_broken_between_words():
    moved = {"name": "curvflow.tasks.far:thing", "change": "changed", "path": []}
    change = {"kind": "probe.far", "moved": [moved], "nodes": 1}
    times = ("predicted_nodes", "unknown_cost_nodes", "saved_seconds")
    said = plan_summary(
        {
            "study": "a-study-of-a-long-name",
            "stages": {},
            "causes": [],
            "total": 29,
            "cached": 29,
            "stale": 0,
            "waiting": 0,
            **dict.fromkeys(times, 0),
            "code": [{**change, "predicted_seconds": 0.0}],
        }
    )
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert "probe.far: tasks.far:thing changed" in lines[1]
    summary = "nothing to do; run asks what changed code means"
    assert summary in " ".join(lines)
