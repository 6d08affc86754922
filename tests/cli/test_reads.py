"""What code of a user's read, or may have, is told by `show` and on the report page."""

from hashlib import sha256

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
ROWS = """\
import os
from pathlib import Path


def rows():
    os.environ.get("LAB_ROOM")
    x = float(Path(__file__).with_name("x.txt").read_text())
    return [[0.0], [x], [2.0]], [0, 1, 0]
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = tmp_path.name.rstrip("0123456789")  # no other test has imported it
    (tmp_path / f"{module}.py").write_text(ROWS)
    (tmp_path / "x.txt").write_text("1.5")
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


def test_the_report_lists_files_that_were_read_and_what_no_file_holds(curvflow, study):
    curvflow("run", study)
    curvflow("report", study, "--output", "page.html")
    page = study.with_name("page.html").read_text()
    assert "x.txt</dt><dd>SHA-256 <code>" + sha256(b"1.5").hexdigest() in page
    assert "mine reads the environment variable LAB_ROOM" in page
    assert "\\u" not in page[page.index("<body") : page.index("<script")]
    assert "&numsp;" in page
