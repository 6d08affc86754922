"""Repositories in HuggingFace's cache, as its libraries lay it out."""

import hashlib

import pytest
import torch
from safetensors.torch import save as save_safetensors

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.hub_cache import hub_folder, snapshot
from curvflow.flows.graph.open_study import opened_in
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore

STUDY = """
study: downloaded
axes: {revision: [main, early]}
stages:
  xor: {use: data.xor}
  brought: {use: weights.import, repo: lab/net, revision: "${revision}", data: xor,
            model: {kind: linear}, loss: mse}
  norms: {use: probe.norms, weights: brought}
"""


class Cache:
    """A cache of one repository, written as HuggingFace's libraries write it."""

    def __init__(self, hub, repo="lab/net"):
        self.folder = hub / f"models--{repo.replace('/', '--')}"

    def commit(self, branch, tensors, name="model.safetensors"):
        content = save_safetensors(tensors)
        commit = hashlib.sha1(branch.encode() + content).hexdigest()
        blob = self.folder / "blobs" / hashlib.sha256(content).hexdigest()
        link = self.folder / "snapshots" / commit / name
        reference = self.folder / "refs" / branch
        for path in (blob, link, reference):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        if not link.exists():
            link.symlink_to(blob)
        reference.write_text(commit, encoding="utf-8")
        return commit


def tensors(value):
    weight = torch.full((1, 2), value)
    return {"layer1.weight": weight, "layer1.bias": torch.zeros(1)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return Cache(tmp_path / "hf" / "hub")


def test_a_branch_is_its_commit_and_a_commit_itself(cache):
    commit = cache.commit("main", tensors(1.0))
    other = cache.commit("refs/pr/1", tensors(2.0))
    assert snapshot("lab/net", "main").name == commit
    assert snapshot("lab/net", commit).name == commit
    assert snapshot("lab/net", "refs/pr/1").name == other


def test_the_cache_is_where_its_variables_say(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub_folder() == tmp_path / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert hub_folder() == tmp_path / "c" / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "h"))
    assert hub_folder() == tmp_path / "h" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "u"))
    assert hub_folder() == tmp_path / "u"


def test_what_is_not_in_the_cache_is_refused_with_what_is(cache):
    with pytest.raises(InputError, match=r"got lab/net, .* It has none. `hf download"):
        snapshot("lab/net", "main")
    commit = cache.commit("main", tensors(1.0))
    with pytest.raises(InputError, match=r"got lab/nets.* Did you mean 'lab/net'"):
        snapshot("lab/nets", "main")
    with pytest.raises(InputError, match=r"got mains, .* Did you mean 'main'\?"):
        snapshot("lab/net", "mains")
    with pytest.raises(
        InputError, match=r"got refs/pr/1, which is not there\. (It|Did|Known)"
    ):
        snapshot("lab/net", "refs/pr/1")
    with pytest.raises(InputError, match=f"Did you mean '{commit}'"):
        snapshot("lab/net", commit[:-3])


def test_a_branch_whose_files_are_not_there_is_refused_as_such(cache):
    cache.commit("main", tensors(1.0))
    (cache.folder / "refs" / "v2").write_text("c" * 40, encoding="utf-8")
    with pytest.raises(InputError, match=r"files of lab/net at v2 .* of the commit c"):
        snapshot("lab/net", "v2")


@pytest.mark.parametrize("written", ["", "../../elsewhere", "/etc", "..", "a\nb"])
def test_a_reference_that_names_no_commit_is_refused(cache, written):
    cache.commit("main", tensors(1.0))
    (cache.folder / "refs" / "main").write_text(written, encoding="utf-8")
    with pytest.raises(InputError, match="expected the name of a commit in"):
        snapshot("lab/net", "main")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "expected path or repo, got none"),
        ({"path": "a.pt", "repo": "lab/net"}, "expected path or repo, got both"),
        ({"repo": "../lab"}, "should match pattern"),
        ({"repo": "lab/net/more"}, "should match pattern"),
        ({"repo": "lab/net", "revision": "../../x"}, "a branch, a tag or a commit"),
        ({"repo": "lab/net", "revision": "/etc"}, "a branch, a tag or a commit"),
    ],
)
def test_what_names_no_repository_is_refused(settings, says):
    params = find_kind("weights.import").params
    with pytest.raises(ValueError, match=says):
        params.model_validate({"model": {"kind": "linear"}, **settings})


def test_revisions_are_an_axis_and_their_files_are_what_counts(cache, tmp_path):
    store = MemoryStore()

    def run():
        opened = opened_in(tmp_path, load_study(STUDY, file="downloaded.yaml"))
        report = run_study(opened.study, store, opened.files)
        assert report.record.failures == []
        read = {
            node.point: float(store.read(node.receipt, ["norm_l2"])["norm_l2"])
            for node in report.plan.graph.nodes["norms"]
        }
        forms = [node.form["repo"] for node in report.plan.graph.nodes["brought"]]
        return report.record.counts["executed"], read, forms

    late = cache.commit("main", tensors(3.0))
    early = cache.commit("early", tensors(1.0))
    executed, read, forms = run()
    assert [form["commit"] for form in forms] == [late, early]
    assert read == {
        ("main",): pytest.approx(18**0.5),
        ("early",): pytest.approx(2**0.5),
    }
    assert executed["norms"] == 2
    late = cache.commit("main", tensors(2.0))
    executed, read, forms = run()
    assert forms[0]["commit"] == late
    assert (executed["brought"], executed["norms"]) == (1, 1)
    assert read["main",] == pytest.approx(8**0.5)


def test_a_branch_that_moves_after_planning_is_read_as_it_was_planned(cache, tmp_path):
    for branch in ("main", "early"):
        cache.commit(branch, tensors(1.0))
    opened = opened_in(tmp_path, load_study(STUDY, file="downloaded.yaml"))
    plan = make_plan(opened.study, MemoryStore(), opened.files)
    cache.commit("main", tensors(5.0))
    node = plan.graph.nodes["brought"][0]
    arrays = opened.files.read(node.params, node.form)["repo"]
    assert arrays["layer1.weight"].tolist() == [[1.0, 1.0]]


def test_a_repository_without_weights_is_refused_while_planning(cache, tmp_path):
    cache.commit("main", tensors(1.0), name="flax_model.msgpack")
    opened = opened_in(tmp_path, load_study(STUDY, file="downloaded.yaml"))
    with pytest.raises(StudyError, match=r"brought.repo: expected model.safetensors"):
        make_plan(opened.study, MemoryStore(), opened.files)
