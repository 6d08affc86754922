"""Raw files and folders of files count by content, and are looked at while planning."""

import io
import os
import pickle
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.reads import places
from curvflow.schemas.kinds.data.folder import IMAGES, FolderParams
from tests.flows.run.test_run import executed
from tests.flows.toys import opened, run

STUDY = """
study: files
axes: {}
stages:
  pets: {use: data.folder, path: pets}
  story: {use: data.text, path: story.txt, length: 4}
  table: {use: data.table, path: table.csv, target: y}
"""


def paint(path, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), level, np.uint8)).save(path)


@pytest.fixture
def digested(monkeypatch):
    """Return the names of the files whose contents are digested from now on."""
    names, digest = [], places.file_digest

    def counted(file, algorithm):
        names.append(Path(file.name).name)
        return digest(file, algorithm)

    monkeypatch.setattr(places, "file_digest", counted)
    monkeypatch.setattr(places, "TICK", 0)  # files of this test are not older
    return names


@pytest.fixture
def folder(tmp_path):
    for name in ("cat/1.png", "cat/2.PNG", "dog/1.png"):
        paint(tmp_path / "pets" / name, 7)
    (tmp_path / "story.txt").write_text("abcabcabc" * 10)
    (tmp_path / "table.csv").write_text("x,y\n" + "1.5,a\n2.5,b\n" * 5)
    return tmp_path


def go(store, folder, *overrides):
    return executed(run(store, *overrides, text=STUDY, folder=folder))


def planned(store, folder, text=STUDY):
    o = opened(store, text=text, folder=folder)
    return make_plan(o.study, o.store, o.files)


def test_names_and_contents_in_a_folder_count_and_its_own_name_does_not(store, folder):
    assert go(store, folder) == {"pets": 1, "story": 1, "table": 1}
    for name in ("pets", "story.txt", "table.csv"):
        (folder / name).rename(folder / f"my_{name}")
    moved = [
        "stages.pets.path=my_pets",
        "stages.story.path=my_story.txt",
        "stages.table.path=my_table.csv",
    ]
    pets = folder / "my_pets"
    # What is no image, or hidden, is not there.
    (pets / "cat" / "notes.txt").write_text("a note")
    paint(pets / ".trash" / "3.png", 3)
    assert go(store, folder, *moved) == {}
    paint(pets / "cat" / "1.png", 8)
    assert go(store, folder, *moved) == {"pets": 1}
    (pets / "cat" / "2.PNG").rename(pets / "dog" / "2.PNG")
    (folder / "my_story.txt").write_text("abcabcabd" * 10)
    (folder / "my_table.csv").write_text("x,y\n" + "1.5,a\n2.5,b\n" * 6)
    assert go(store, folder, *moved) == {"pets": 1, "story": 1, "table": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pets: {use: data.folder, path: nets}", "expected a readable folder"),
        ("pets: {use: data.folder, path: story.txt}", "expected a readable folder"),
        ("pets: {use: data.folder, path: pets/cat}", "as class/name"),
        ("s: {use: data.text, path: nets.txt}", "expected a readable file"),
        ("s: {use: data.text, path: story.txt, length: 90}", "length: expected"),
        ("t: {use: data.table, path: table.csv, target: z}", "target: expected"),
    ],
)
def test_files_that_will_not_do_are_refused_while_planning(
    store, folder, line, message
):
    with pytest.raises(StudyError, match=message) as caught:
        planned(store, folder, f"study: files\nstages:\n  {line}\n")
    assert "\n" not in str(caught.value)


def test_a_folder_within_that_cannot_be_read_is_named(store, folder, monkeypatch):
    scan = os.scandir

    def forbidden(path):
        if Path(path).name == "dog":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(StudyError, match=r"readable folder, got .*dog .Permission den"):
        planned(store, folder)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (slice(600, None), zipfile.BadZipFile),
        (slice(600, 700), zipfile.BadZipFile),
        (slice(60, 70), zlib.error),
        (slice(200, 300), tokenize.TokenError),
    ],
)
def test_a_broken_archive_is_refused_while_planning(store, folder, damage, error):
    file, draw = io.BytesIO(), np.random.default_rng(0)
    np.savez_compressed(file, inputs=draw.normal(size=(2000, 2)), targets=np.ones(9))
    content = bytearray(file.getvalue())
    content[damage] = bytes([255] * len(content[damage])) * (damage.stop is not None)
    with pytest.raises(error):
        dict(np.load(io.BytesIO(bytes(content))))
    (folder / "own.npz").write_bytes(content)
    text = "study: files\nstages:\n  own: {use: data.array, path: own.npz}\n"
    with pytest.raises(StudyError, match=r"path: expected a file of numbers, .* own"):
        planned(store, folder, text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("pets: {use: data.folder, path: pets, size: 4}", "labels of 'pets', got mse"),
        ("t: {use: data.table, path: table.csv, target: y}", "labels of 't', got mse"),
        (
            "s: {use: data.text, path: story.txt, length: 4}",
            "for the labels of 4 tokens a sample of 's', got linear",
        ),
    ],
)
def test_samples_in_files_are_held_against_models_while_planning(
    store, folder, data, message
):
    name = data.partition(":")[0]
    fit = f"{{use: train, data: {name}, model: {{kind: linear}}, loss: mse, epochs: 1"
    rule = "rule: {rule: sgd, lr: 0.1}}"
    text = f"study: files\nstages:\n  {data}\n  fit: {fit}, {rule}\n"
    with pytest.raises(StudyError, match=message):
        planned(store, folder, text)


def files_of(folder):
    params = FolderParams(path="pets")
    files = SourceFiles(folder)
    digest = files.digests(None, params)["path"]
    return files, params, {"path": {"sha256": digest}}


def test_a_file_is_digested_once_until_it_changes(store, folder, digested):
    text = STUDY.replace("{}", "{seed: 3}")
    text += """\
  others: {use: data.table, path: table.csv, target: y, seed: "${seed}",
           test_fraction: 0.5}
  pets2: {use: data.folder, path: pets, size: [2, 2]}
"""
    planned(store, folder, text)
    names = ["1.png", "1.png", "2.PNG", "story.txt", "table.csv"]
    assert sorted(digested) == names
    first = planned(store, folder, text).graph.nodes["others"][0].key
    assert sorted(digested) == names
    with (folder / "table.csv").open("r+") as table:
        table.write("z")  # of the same size
    second = planned(store, folder, text).graph.nodes["others"][0].key
    assert sorted(digested) == sorted([*names, "table.csv"])
    assert first != second


def test_a_file_that_changes_behind_the_plan_is_refused(folder):
    files, params, form = files_of(folder)
    read = files.read(params, form)["path"]
    assert set(read) == {"cat/1.png", "cat/2.PNG", "dog/1.png"}
    assert len(read) == 3
    elsewhere = pickle.loads(pickle.dumps(read))  # as a worker has it
    np.testing.assert_array_equal(elsewhere["dog/1.png"], read["dog/1.png"])
    paint(folder / "pets" / "cat" / "1.png", 9)
    with pytest.raises(InputError, match=r"expected the cat/1\.png .* changed"):
        read["cat/1.png"]
    with pytest.raises(InputError, match="expected the files of pets"):
        files.read(params, form)
    (folder / "pets" / "dog" / "1.png").unlink()
    with pytest.raises(InputError, match=r"expected the file dog/1\.png .* got none"):
        read["dog/1.png"]
    (folder / "pets").rename(folder / "gone")
    with pytest.raises(InputError, match="expected the folder pets"):
        files.read(params, form)


def test_a_link_to_a_folder_is_followed_and_one_that_leads_back_ends(folder):
    (folder / "pets" / "emu").symlink_to(folder / "pets" / "dog")
    files, params, form = files_of(folder)
    assert "emu/1.png" in files.read(params, form)["path"]
    (folder / "pets" / "dog" / "up").symlink_to(folder / "pets")
    files, params, form = files_of(folder)
    deepest = max(files.read(params, form)["path"], key=lambda name: name.count("/"))
    assert deepest.count("/") == IMAGES.depth
