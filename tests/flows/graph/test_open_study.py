"""Files count by their content, and are looked at while planning."""

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.flows.plan.plan import make_plan
from tests.flows.run.test_run import executed
from tests.flows.toys import opened, run

STUDY = """
study: files
axes: {}
stages:
  data: {use: data.array, path: mine.npz}
"""


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "mine.npz")
    return tmp_path


def write(path, **arrays):
    inputs = np.arange(12.0).reshape(6, 2)
    targets = np.array([0, 1, 0, 1, 0, 1])
    np.savez(path, **({"inputs": inputs, "targets": targets} | arrays))


def go(store, folder, *overrides):
    return executed(run(store, *overrides, text=STUDY, folder=folder))


def test_a_renamed_file_executes_nothing_and_a_changed_one_does(store, folder):
    assert go(store, folder) == {"data": 1}
    (folder / "mine.npz").rename(folder / "yours.npz")
    assert go(store, folder, "stages.data.path=yours.npz") == {}
    write(folder / "yours.npz", targets=np.array([1, 0, 1, 0, 1, 0]))
    assert go(store, folder, "stages.data.path=yours.npz") == {"data": 1}


def test_a_finished_node_needs_its_file_no_more_than_to_know_it(store, folder):
    go(store, folder)
    (folder / "mine.npz").unlink()
    with pytest.raises(StudyError, match="expected a readable file"):
        go(store, folder)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": np.full((6, 2), np.nan)}, "NaN"),
        ({"targets": np.array([0, 1])}, "got"),
        ({"targets": np.array([0, 5, 0, 5, 0, 5])}, "got"),
        ({"inputs": np.array(["a"] * 6)}, "got"),
    ],
    ids=["NaN", "lengths", "label range", "text"],
)
def test_what_a_file_holds_is_refused_while_planning(store, folder, arrays, message):
    write(folder / "mine.npz", **arrays)
    o = opened(store, text=STUDY, folder=folder)
    with pytest.raises(StudyError, match=rf"stages\.data.*expected .*{message}") as it:
        make_plan(o.study, o.store, o.files)
    assert "\n" not in str(it.value)


def test_a_file_of_another_kind_is_refused(store, folder):
    (folder / "mine.npz").write_text("not an archive")
    o = opened(store, text=STUDY, folder=folder)
    with pytest.raises(
        StudyError, match=r"expected a file of numbers, .npy, .npz, .pt"
    ):
        make_plan(o.study, o.store, o.files)
