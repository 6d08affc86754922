"""Files with their tests together, the longest first; servers to one process."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import conftest

pytestmark = pytest.mark.processes


class Item:
    """A test as pytest collects it."""

    def __init__(self, nodeid, *marks):
        self.nodeid, self.marks = nodeid, dict.fromkeys(marks, True)

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        assert mark.name == "xdist_group"
        self.marks["group"] = mark.args[0]


@pytest.fixture
def ordered(tmp_path, monkeypatch):
    """Return a function that orders tests whose files took some seconds."""
    file = tmp_path / "durations.json"
    monkeypatch.setattr(conftest, "DURATIONS", file)

    def order(items, **seconds):
        measured = {f"tests/{k}.py": {"seconds": v} for k, v in seconds.items()}
        file.write_text(json.dumps(measured))
        for item in items:
            conftest.pytest_itemcollected(item)
        conftest.pytest_collection_modifyitems(items)
        return [item.nodeid.removeprefix("tests/") for item in items]

    return order


def test_the_longest_file_is_first_and_an_unknown_one_takes_some_seconds(ordered):
    items = [Item(f"tests/{name}.py::t") for name in ("short", "new", "long")]
    names = ordered(items, long=60, short=1)
    assert names == ["long.py::t", "new.py::t", "short.py::t"]
    assert [item.marks["group"] for item in items] == [
        "tests/long.py",
        "tests/new.py",
        "tests/short.py",
    ]


def test_tests_that_need_a_server_run_in_one_process_for_their_folder(ordered):
    items = [
        Item("tests/a/one.py::t", "cluster"),
        Item("tests/a/plain.py::t"),
        Item("tests/a/two.py::t", "cluster"),
        Item("tests/b/one.py::t", "prefect"),
    ]
    names = ordered(items, **{"a/one": 9, "a/two": 9, "a/plain": 12})
    assert names == ["b/one.py::t", "a/one.py::t", "a/two.py::t", "a/plain.py::t"]
    groups = [item.marks["group"] for item in items]
    assert groups[1] == groups[2]
    assert len(set(groups)) == 3


def test_tests_that_may_be_spread_have_no_group(ordered):
    items = [Item("tests/one.py::a", "spread"), Item("tests/one.py::b", "spread")]
    ordered(items)
    assert all("group" not in item.marks for item in items)


def test_processes_are_given_whole_files(tmp_path):
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in ("conftest.py", "durations.json"):
        (folder / name).write_bytes((conftest.TESTS / name).read_bytes())
    text = (
        "import pytest\n\n@pytest.mark.parametrize('n', range(9))\ndef test(n): pass\n"
    )
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  spread: x\n")
    how = ["-v", "--dist", "loadgroup", "-n", "2", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *how, "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = re.findall(r"\[(gw\d)\].* PASSED .*(test_\w+)\.py", done.stdout)
    assert len(lines) == 18
    assert len(set(lines)) == 2  # a process for each file


def test_seconds_and_tests_of_a_file_are_recorded_and_others_kept(
    tmp_path, monkeypatch
):
    file = tmp_path / "durations.json"
    kept = "tests/test_layers.py"
    before = {kept: {"seconds": 3.0, "tests": 1}, "tests/gone.py": {}}
    file.write_text(json.dumps(before))
    monkeypatch.setattr(conftest, "DURATIONS", file)
    recorder = conftest.Recorder()
    for when, seconds in (("setup", 1.0), ("call", 4.0), ("teardown", 0.5)):
        report = SimpleNamespace(
            nodeid="tests/test_order.py::t@group", when=when, duration=seconds
        )
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert list(json.loads(file.read_text()).items()) == [
        ("tests/test_order.py", {"seconds": 5.5, "tests": 1}),
        (kept, {"seconds": 3.0, "tests": 1}),
    ]
