"""Files of published graphs are found, verified, or refused with what to install."""

import hashlib
import io
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.published import graphs
from curvflow.flows.published.graphs import PublishedGraph
from curvflow.flows.run.run import run_study
from curvflow.schemas.published_graphs import PUBLISHED
from curvflow.stores.memory import MemoryStore

GML = b"""graph [
  node [ id 7 label "ann" ] node [ id 3 label "ben" ] node [ id 5 label "cleo" ]
  edge [ source 7 target 3 ] edge [ source 3 target 5 ]
]
"""
STUDY = "study: it\nstages:\n  it: {use: data.graph, name: dolphins, folder: files}\n"


@pytest.fixture(autouse=True)
def other_content(monkeypatch, tmp_path):
    """Let two graphs be small ones, and no folder of the user's be searched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CURVFLOW_DATA", raising=False)
    known = hashlib.sha256(GML).hexdigest()
    for name in ("dolphins", "minnesota"):
        small = replace(PUBLISHED[name], sha256=known)
        monkeypatch.setitem(graphs.PUBLISHED, name, small)
    (tmp_path / "files").mkdir()


def arrays(tmp_path, study=STUDY):
    path = tmp_path / "study.yaml"
    path.write_text(study)
    opened, store = open_study(path, store="memory:"), MemoryStore()
    run_study(opened.study, store, opened.files)
    (receipt,) = store.index().receipts.values()
    return receipt


def packed(path, file):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(f"kiara-0.5.2/{file}")
        info.size = len(GML)
        archive.addfile(info, io.BytesIO(GML))


def test_a_file_or_the_archive_that_holds_it_gives_the_graph(tmp_path):
    (tmp_path / "files" / "dolphins.gml").write_bytes(GML)
    from_file = arrays(tmp_path)
    assert from_file.status == "ok"
    (tmp_path / "files" / "dolphins.gml").unlink()
    archive = "kiara_plugin_network_analysis-0.5.2.tar.gz"
    packed(tmp_path / "files" / archive, PUBLISHED["dolphins"].file)
    assert arrays(tmp_path).digest == from_file.digest


def test_an_installed_package_is_searched(tmp_path, monkeypatch):
    file = tmp_path / "localgraphclustering" / PUBLISHED["minnesota"].file
    file.parent.mkdir(parents=True)
    file.write_bytes(GML)
    (tmp_path / "localgraphclustering" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = PublishedGraph("minnesota", tmp_path)
    assert [*found] == ["bytes"]
    assert len(found) == 1
    assert found["bytes"].tobytes() == GML
    with pytest.raises(KeyError):
        found["rows"]


def test_a_folder_of_the_environment_is_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("CURVFLOW_DATA", str(tmp_path))
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "dolphins.gml").write_bytes(GML)
    content = PublishedGraph("dolphins", tmp_path)["bytes"]
    assert content.dtype == np.uint8


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("dolphins", "pip download --no-deps --no-binary :all: kiara_plugin"),
        ("minnesota", "pip install --no-deps localgraphclustering==0.6.1"),
    ],
)
def test_what_is_missing_is_refused_while_planning(tmp_path, name, command):
    with pytest.raises(StudyError, match=r"study.yaml:3.*got none in files") as caught:
        arrays(tmp_path, STUDY.replace("dolphins", name))
    assert command in str(caught.value)
    with pytest.raises(InputError, match="expected the file of"):
        PublishedGraph(name, tmp_path)["bytes"]


def test_another_content_is_refused(tmp_path):
    for name, content in (("dolphins.gml", GML + b" "), ("minnesota.smat", b"")):
        (tmp_path / "files" / name).write_bytes(content)
        graph = PublishedGraph(name.partition(".")[0], tmp_path, "files")
        with pytest.raises(InputError, match="expected the published content with SHA"):
            graph["bytes"]


def test_an_archive_that_is_none_is_refused(tmp_path):
    archive = tmp_path / "files" / "kiara_plugin_network_analysis-0.5.2.tar.gz"
    archive.write_bytes(b"none")
    graph = PublishedGraph("dolphins", tmp_path, "files")
    with pytest.raises(InputError, match="expected a readable file"):
        graph["bytes"]
    packed(archive, "other.gml")
    with pytest.raises(InputError, match="expected the published content"):
        graph["bytes"]
