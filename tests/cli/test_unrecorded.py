"""Results whose reads nobody recorded are told by `show` and on the report page."""

import pytest

TOLD = "what code of yours read was not recorded"
STUDY = """\
study: own
axes: {}
stages:
  mine: {use: data.factory, factory: "MODULE:rows"}
  fit: {use: train, data: mine, model: {kind: mlp, hidden: [2]},
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
"""
ROWS = "def rows():\n    return [[0.0], [1.0], [2.0]], [0, 1, 0]\n"


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = tmp_path.name.rstrip("0123456789")  # no other test has imported it
    (tmp_path / f"{module}.py").write_text(ROWS)
    (tmp_path / "own.yaml").write_text(STUDY.replace("MODULE", module))
    return tmp_path / "own.yaml"


def test_show_and_report_tell_what_was_not_recorded(curvflow, study):
    assert curvflow("run", study, "--no-record-reads").code == 0
    assert curvflow("show", study, "mine").err == f"mine: {TOLD} (1 of 1 nodes)\n"
    assert f"mine: {TOLD} (1 of 1 nodes)" in curvflow("show", study).out
    assert TOLD not in curvflow("show", study, "fit").err
    curvflow("report", study, "--output", "page.html")
    assert "What code of yours read was not recorded" in (
        study.with_name("page.html").read_text()
    )


def test_recorded_results_have_no_such_line(curvflow, study):
    assert curvflow("run", study).code == 0
    assert TOLD not in curvflow("show", study).out
    assert curvflow("show", study, "mine").err == ""
