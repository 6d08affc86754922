"""The flow that makes room in a store, run against a real server."""

import json

import pytest

import curvflow
from curvflow.stores.open import open_store

pytestmark = pytest.mark.prefect

STUDY = """\
study: tiny
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 2}
"""
# Prints name and message of the final state of one collection after another.
COLLECT = """
import json, sys
from curvflow.flows.deployed.collect import collect_store

for asked in json.loads(sys.argv[1]):
    state = collect_store(**asked, return_state=True)
    print(json.dumps([state.name, state.message]))
"""


@pytest.fixture
def project(tmp_path):
    """Return a folder with a study, whose store holds what no kept run needs."""
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    curvflow.run(path)
    curvflow.run(path, overrides=["stages.fit.epochs=3"])
    return tmp_path


def collected(server, *asked, cold=False):
    """Run collections and return name and message of each one's final state."""
    done = server.python(COLLECT, json.dumps(asked), cold=cold)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def payloads(project):
    """Return the names of the payloads in a project's store."""
    room = open_store(project / ".curvflow", create=False).files
    return {item.payload for item in room.items("payloads")}


def test_a_scheduled_collection_is_dry_unless_it_is_set_to_delete(server, project):
    before = payloads(project)
    asked = {"study": "tiny.yaml", "project": str(project), "keep_runs": 1}
    (dry,) = collected(server, asked, cold=True)
    assert dry[0] == "Completed"
    assert dry[1].startswith("1 payload (")
    assert dry[1].endswith("nothing is touched without delete")
    assert payloads(project) == before

    # The store may be named as well as the study whose store it is.
    by_store = {"store": ".curvflow", "project": str(project), "keep_runs": 1}
    first, second = collected(server, *[by_store | {"delete": True}] * 2)
    assert first[1].startswith("1 payload (")
    assert "moved to the trash, 0 files" in first[1]
    assert len(before - payloads(project)) == 1
    assert second[1].startswith("0 payloads (0 B) moved to the trash, 1 file (")

    pages = server.post("/artifacts/filter", sort="CREATED_DESC")
    pages = [page for page in pages if page["key"] == "curvflow-gc"]
    assert str(project) in pages[0]["data"]
    assert "| tiny/fit | 1 |" in pages[1]["data"]


def test_a_collection_that_cannot_be_done_fails_on_one_line(server, tmp_path):
    neither, absent, kind = collected(
        server,
        {},
        {"store": "nowhere", "project": str(tmp_path)},
        {"study": "gone.yaml", "project": str(tmp_path)},
    )
    assert neither == ["Failed", "expected study or store, got neither. Name a store."]
    assert absent[0] == kind[0] == "Failed"
    assert "nowhere: expected a store, got nothing there" in absent[1]
    assert "gone.yaml: expected a study file, got none" in kind[1]
