"""The search for files, in order."""

import pytest

from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import (
    VARIABLE,
    download_folder,
    locate,
    missing_file,
    search_folders,
)
from tests.flows.published.fakes import (
    idx_contents,
    write,
    write_zipped,
)

MNIST = CATALOGUE["mnist"]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("inner", ["", "mnist", "MNIST/raw", "raw"])
@pytest.mark.parametrize("put", [write, write_zipped])
def test_files_are_found_in_the_usual_subfolders_packed_or_not(tmp_path, inner, put):
    put(tmp_path / inner, MNIST.layouts[0], idx_contents())
    located = locate(MNIST, tmp_path)
    assert located is not None
    assert {path.parent for path in dict(located.paths).values()} == {tmp_path / inner}
    assert set(dict(located.paths)) == set(MNIST.layouts[0].files)


def test_files_may_lie_in_two_subfolders_and_be_named_with_a_dot(tmp_path):
    contents = idx_contents()
    for part, content in contents.items():
        inner = tmp_path / ("mnist" if "train" in part else "raw")
        inner.mkdir(exist_ok=True)
        (inner / MNIST.layouts[0].names(part)[1]).write_bytes(content)
    located = locate(MNIST, tmp_path)
    assert located is not None
    assert dict(located.paths)["train-images"].name == "train-images.idx3-ubyte"


def test_a_layout_that_is_not_whole_is_not_found(tmp_path):
    contents = idx_contents()
    del contents["t10k-labels"]
    write(tmp_path, MNIST.layouts[0], contents)
    assert locate(MNIST, tmp_path) is None
    assert missing_file(MNIST, tmp_path) == "t10k-labels-idx1-ubyte"
    assert locate(MNIST, tmp_path / "nowhere") is None
    assert missing_file(MNIST, tmp_path / "nowhere") is None


def test_another_layout_is_found_where_the_first_is_not_whole(tmp_path):
    ten = CATALOGUE["cifar10"]
    write(
        tmp_path / "cifar10", ten.layouts[2], dict.fromkeys(ten.layouts[2].files, b"")
    )
    (tmp_path / "data_batch_1.bin").write_bytes(b"")
    located = locate(ten, tmp_path)
    assert located is not None
    assert located.layout is ten.layouts[2]


def test_the_search_begins_with_what_the_user_names(tmp_path, monkeypatch):
    labels = [place.label for place in search_folders("mnist", "my/files", tmp_path)]
    cache = str(tmp_path / "cache/curvflow/mnist")
    assert labels == ["my/files", f"{VARIABLE} (not set)", cache]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    first = search_folders("mnist", None, tmp_path)[0]
    assert first.path == tmp_path / "all"


@pytest.mark.parametrize("folder", [None, "mine"])
@pytest.mark.parametrize("variable", [False, True])
def test_a_download_goes_where_it_is_looked_for(
    tmp_path, monkeypatch, folder, variable
):
    if variable:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    target = download_folder("mnist", folder, tmp_path)
    write_zipped(target, MNIST.layouts[0], idx_contents())
    folders = [p.path for p in search_folders("mnist", folder, tmp_path) if p.path]
    assert any(locate(MNIST, path) for path in folders if target.is_relative_to(path))
