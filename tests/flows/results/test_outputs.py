"""Tables and figures as files beside the study."""

import csv
import json
from dataclasses import replace

import pytest

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.flows.results.node_results import View, plan_views
from curvflow.flows.results.outputs import MANIFEST, replace_file, write_outputs
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Figure
from curvflow.schemas.params import Params
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import STUDY, run

TWO = STUDY + "  other: {use: toy.mean, of: last, over: rule}\n"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


def views_of(store, *overrides):
    return plan_views(run(store, *overrides, text=TWO).plan)


def test_a_renamed_label_is_written_anew(store, folder):
    write_outputs(views_of(store), store, folder)
    renamed = "axes.rule={slow: {lr: 0.25}, quick: {lr: 0.75}}"
    write_outputs(views_of(store, renamed), store, folder)
    rows = list(csv.DictReader((folder / "mean.csv").read_text().splitlines()))
    assert [row["rule"] for row in rows] == ["slow", "quick"]


@pytest.mark.parametrize("damaged", ["{", "[]", '{"mean.csv": 1}', "\udce4"])
def test_a_damaged_manifest_counts_as_empty(store, folder, damaged):
    views = views_of(store)
    before = write_outputs(views, store, folder)
    (folder / MANIFEST).write_bytes(damaged.encode(errors="surrogateescape"))
    (folder / "mean.csv").write_text("old")
    assert write_outputs(views, store, folder) == before
    assert (folder / "mean.csv").read_text().startswith("rule,status")


def test_a_folder_that_cannot_be_made_is_reported_on_one_line(store, folder):
    folder.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"expected a file that can be") as caught:
        write_outputs(views_of(store), store, folder)
    assert "\n" not in str(caught.value)


def test_all_others_are_written_where_one_result_is_unreadable(store, folder):
    views = views_of(store)
    for payload in {receipt.payload for receipt in views["mean"].receipts}:
        del store._payloads[payload]
    with pytest.raises(CorruptPayloadError):
        write_outputs(views, store, folder)
    assert (folder / "other.csv").exists()
    assert not (folder / "mean.csv").exists()


def test_labels_that_look_alike_as_file_names_get_files_of_their_own(store, folder):
    class NoParams(Params):
        """No parameters."""

    image = Variable("png", "picture", ("byte",), "uint8", bulk=True, file=".png")
    kind = Kind("toy.figure", 1, "A figure.", NoParams, Figure, (image,))
    receipt = run(store).plan.graph.nodes["data"][0].receipt
    points = [("a b",), ("a/b",), ("c",), ("x" * 300,), ("x" * 301,)]
    receipts = [replace(receipt, parts={"png": "0"}) for _ in points]
    view = View("fig", kind.name, ("x",), points, receipts, declared=kind)
    store.fetch = lambda receipt, parts: {"png": b"png"}
    names = [path.name for path in write_outputs({"fig": view}, store, folder)]
    assert len(set(names)) == 5
    assert max(map(len, names)) < 255
    assert names[2] == "fig_x-c.png"
    assert all(name.startswith("fig_x-a_b_") for name in names[:2])


def test_a_manifest_that_names_files_elsewhere_removes_none_of_them(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "results" / "study"
    folder.mkdir(parents=True)
    names = {"../../victim": "x", str(victim): "y", "..": "z"}
    (folder / ".written.json").write_text(json.dumps(names))
    write_outputs({}, MemoryStore(), folder)
    assert victim.read_text() == "mine"


def test_a_file_that_cannot_be_replaced_leaves_no_part_of_it(tmp_path):
    (tmp_path / "page").mkdir()
    with pytest.raises(StoreError, match="page: expected a file that can be written"):
        replace_file(tmp_path / "page", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
