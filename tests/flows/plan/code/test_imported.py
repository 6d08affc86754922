"""What is computed is recorded with the code that computed it."""

import importlib
import os
import sys

import numpy as np
import pytest

from curvflow.errors import RequestError, StudyError
from curvflow.flows.plan.code.sources import Sources
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study
from curvflow.schemas.options import RunOptions
from curvflow.stores.memory import MemoryStore
from tests.flows.lab import accept, laboratory
from tests.flows.toys import opened

REFUSED = (
    r"^lab_help: expected the code that was imported, got a file that has changed "
    r"since\. Restart Python, or reload the module\.$"
)
NETS = """
import torch
from late_scale import WIDTH


def make():
    torch.manual_seed(0)
    return torch.nn.Linear(2, WIDTH)
"""
FIT = """
study: late
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, epochs: 1, rule: {rule: sgd, lr: 0.1},
        model: {factory: "late_nets:make"}}
"""


@pytest.fixture
def lab(tmp_path, store):
    with laboratory(tmp_path, store) as lab_open:
        yield lab_open


def edited(lab, old, new, file="lab_help.py"):
    """Edit a file whose module stays as it was imported."""
    path = lab.folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_file_named_like_a_module_of_python_itself_is_in_nobodys_way(lab):
    (lab.folder / "time.py").write_text("asleep = True\n")
    edited(lab, "FACTOR = 2.0", "import time\nFACTOR = 2.0 if time else 3.0")
    assert lab.run().record.failures == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("scaled(x) + 1.0", "scaled(x) + 2.0"), ("FACTOR = 2.0", "FACTOR = 3.0")],
    ids=["function", "constant"],
)
def test_an_edit_between_two_runs_of_a_process_is_not_computed_with(lab, old, new):
    lab.run()
    edited(lab, old, new)
    number = lab.store.index().number
    with pytest.raises(RequestError, match=REFUSED):
        lab.run("axes.seed=[7]")
    assert lab.store.index().number == number


def test_a_function_edited_before_the_first_run_is_not_computed_with(lab):
    lab.plan()
    edited(lab, "FACTOR * x", "FACTOR * x * x")
    with pytest.raises(RequestError, match=REFUSED):
        lab.run()
    assert not lab.store.index().runs


def test_layout_and_what_no_node_reaches_may_be_edited_while_a_process_lives(lab):
    lab.run()
    edited(lab, "FACTOR = 2.0", "# twice\nUNUSED = 1\nFACTOR = 2.0")
    lab.run("axes.seed=5")
    assert len(lab.store.index().codes) > 1
    assert lab.drifts("axes.seed=5") == {}


def test_a_module_that_was_reloaded_is_computed_with(lab):
    lab.run()
    edited(lab, "scaled(x) + 1.0", "scaled(x) + 2.0")
    importlib.reload(sys.modules["lab_help"])
    with pytest.raises(RequestError, match=REFUSED):  # lab_kinds holds the old function
        lab.run("axes.seed=[7]")
    importlib.reload(sys.modules["lab_kinds"])
    assert lab.executed("axes.seed=[7]")["measure"] == 1


def test_a_sample_is_not_verified_with_code_that_is_not_the_files(lab):
    lab.run()
    edited(lab, "x) + 1.0", "x) + (2.0 - 1.0)")
    with pytest.raises(RequestError, match=REFUSED):
        lab.run(answer=accept("lab.measure", verify=1.0))
    assert not lab.store.index().settlements


def test_a_namesake_from_the_folder_of_another_study_is_not_computed_with(
    lab, tmp_path
):
    lab.run()
    other = tmp_path / "other"
    other.mkdir()
    (other / "lab_kinds.py").write_bytes((lab.folder / "lab_kinds.py").read_bytes())
    sources = Sources(other, tmp_path)
    with pytest.raises(RequestError) as caught:
        sources.module("lab_kinds", frozenset({"lab_kinds"}))
    assert str(caught.value) == (
        f"lab_kinds: expected the module next to the study, {other / 'lab_kinds.py'}, "
        f"got one that was imported before, {lab.folder / 'lab_kinds.py'}. "
        "Restart Python, or rename one of them."
    )
    (other / "lab_kinds.py").unlink()
    (other / "lab_kinds.py").symlink_to(lab.folder / "lab_kinds.py")
    assert Sources(other, tmp_path).module("lab_kinds", frozenset({"lab_kinds"}))


@pytest.fixture
def late(tmp_path, monkeypatch):
    (tmp_path / "late_nets.py").write_text(NETS)
    (tmp_path / "late_scale.py").write_text("WIDTH = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in ("late_nets", "late_scale"):
        sys.modules.pop(name, None)


class Saves(Unwatched):
    """An editor that saves while the run begins."""

    def __init__(self, folder):
        self.folder = folder

    def begin(self, plan):
        text = NETS.replace("WIDTH)", "WIDTH, bias=False)")
        (self.folder / "late_nets.py").write_text(text)


def test_what_is_saved_while_a_run_begins_is_not_computed_with(late):
    store = MemoryStore()
    o = opened(store, text=FIT, folder=late)
    run_study(o.study, store, o.files, observer=Saves(late))
    (fit,) = [r for r in store.index().receipts.values() if r.kind == "train"]
    assert int(store.read(fit, ["num_parameters"])["num_parameters"]) == 3


def test_what_a_function_imports_is_imported_before_the_run_begins(late):
    line = "from late_scale import WIDTH\n"
    inside = NETS.replace(line, "").replace("make():\n", f"make():\n    {line}")
    (late / "late_nets.py").write_text(inside)

    class SavesWidth(Unwatched):
        def begin(self, plan):
            (late / "late_scale.py").write_text("WIDTH = 2\n")

    store = MemoryStore()
    o = opened(store, text=FIT, folder=late)
    run_study(o.study, store, o.files, observer=SavesWidth())
    (fit,) = [r for r in store.index().receipts.values() if r.kind == "train"]
    assert int(store.read(fit, ["num_parameters"])["num_parameters"]) == 3


def test_what_is_saved_while_modules_are_imported_stops_the_run(late):
    scale = late / "late_scale.py"
    scale.write_text(
        "from pathlib import Path\n\nWIDTH = 1\n"
        "Path(__file__).write_text('WIDTH = 2\\n')\n"
    )
    store = MemoryStore()
    o = opened(store, text=FIT, folder=late)
    with pytest.raises(RequestError, match=r"^late_scale: expected the code that was"):
        run_study(o.study, store, o.files)
    assert not store.index().runs


def test_a_module_that_cannot_be_imported_is_refused_before_the_run(late):
    (late / "late_scale.py").write_text("WIDTH = 1\nraise ValueError('no scale')\n")
    store = MemoryStore()
    o = opened(store, text=FIT, folder=late)
    with pytest.raises(StudyError, match=r"late_scale\.py:2: .* ValueError: no scale"):
        run_study(o.study, store, o.files)
    assert not store.index().runs


def test_a_module_that_cannot_be_imported_fails_its_nodes_alone(late):
    """Where the function imports it, which is called for its nodes alone."""
    (late / "late_scale.py").write_text("WIDTH = 1\nraise ValueError('no scale')\n")
    line = "from late_scale import WIDTH\n"
    inside = NETS.replace(line, "").replace("make():\n", f"make():\n    {line}")
    assert inside.index(line) > inside.index("make()")
    (late / "late_nets.py").write_text(inside)
    store = MemoryStore()
    o = opened(store, text=FIT, folder=late)
    report = run_study(o.study, store, o.files)
    assert report.record.counts["executed"] == {"data": 1, "fit": 0}
    assert report.record.counts["failed"] == {"data": 0, "fit": 1}


SCALED = NETS.replace(
    "return torch.nn.Linear(2, WIDTH)",
    "return Scaled(2, WIDTH)\n\n\nclass Scaled(torch.nn.Linear):\n"
    "    def forward(self, x):\n        return 2 * super().forward(x)",
)


def test_a_network_that_was_reloaded_is_compiled_anew(late, monkeypatch):
    # Without a compiler: programs are kept and taken as if there were one.
    monkeypatch.setattr("torch.compile", lambda function, **_: function)

    def trained(compiler):
        store = MemoryStore()
        o, options = opened(store, text=FIT, folder=late), RunOptions(compiler=compiler)
        run_study(o.study, store, o.files, options=options)
        (fit,) = [r for r in store.index().receipts.values() if r.kind == "train"]
        return store.read(fit, ["weights"])["weights"][-1]

    nets = late / "late_nets.py"
    nets.write_text(SCALED)
    before = trained("default")
    nets.write_text(SCALED.replace("2 * super", "5 * super"))
    importlib.reload(sys.modules["late_nets"])
    after = trained("default")
    np.testing.assert_allclose(after, trained("none"), rtol=1e-12)
    assert not np.allclose(after, before)


def test_an_edit_of_equal_size_at_the_same_time_is_seen(tmp_path):
    path = tmp_path / "same_size.py"

    def definitions():
        module = Sources(tmp_path, tmp_path).module("same_size", frozenset())
        return sorted(module.parts)

    path.write_text("A = 1\n")
    before = path.stat().st_mtime_ns
    assert definitions() == ["A"]
    path.write_text("B = 1\n")
    os.utime(path, ns=(before, before))
    assert definitions() == ["B"]
