"""Folders of checkpoints and of networks, and what follows from their files."""

import io
import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_safetensors
from torch import nn

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.network_files import checkpoint_files, network_files, step_of
from curvflow.flows.graph.open_study import opened_in
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore

STUDY = """
study: along
stages:
  xor: {use: data.xor}
  brought: {use: weights.checkpoints, path: runs, data: xor, loss: mse,
            model: {factory: "tests.flows.graph.test_network_files:net", kwargs: {}}}
  norms: {use: probe.norms, weights: brought, at: all}
  last: {use: probe.norms, weights: brought}
  tracked: {use: probe.eigenvalue_tracking, trajectory: brought, k: 1}
  table: {use: aggregate.summary, of: norms, over: epoch, quantities: norm_l2}
"""


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def state(seed):
    torch.manual_seed(seed)
    return net().state_dict()


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def write(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def params(**settings):
    model = {"kind": "linear"}
    kind = find_kind("weights.checkpoints")
    return kind.params.model_validate({"path": "runs", "model": model, **settings})


def steps(folder, **settings):
    return list(checkpoint_files(folder, params(**settings)))


def shards(folder, name="model.safetensors", parts=2):
    """Write the state of seed 7 in several files, as Transformers does."""
    full, where = state(7), {}
    for number in range(parts):
        part = f"{name.partition('.')[0]}-{number + 1:05}-of-{parts:05}.safetensors"
        keys = list(full)[number::parts]
        write(folder / part, save_safetensors({k: full[k] for k in keys}))
        where |= dict.fromkeys(keys, part)
    text = json.dumps({"metadata": {}, "weight_map": where})
    (folder / f"{name}.index.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_100.pt", 100),
        ("step=0000100.safetensors", 100),
        ("model-step100.npz", 100),
        ("epoch=3-step=400.ckpt", 400),
        ("val_loss=0.32-step=400.ckpt", 400),
        ("checkpoint-epoch5.pt", 5),
        ("ckpt_2000.pt", 2000),
        ("iter_7.pth", 7),
        ("net.epoch12.bin", 12),
        ("000300.pt", 300),
        ("last.ckpt", None),
        ("resnet18.pt", None),
        ("substep3.pt", None),
        ("epoch=3.5.pt", None),
        ("step10k.pt", None),
        ("step2M.pt", None),
        ("step_1e3.pt", None),
        ("step1_000.pt", None),
        ("step10kept.pt", 10),
        ("epoch_10_0.91.pth", 10),
        ("epoch_2_2024-01-01.pt", 2),
        ("step_1000_20.pt", 1000),
    ],
)
def test_the_step_is_the_number_behind_its_word(tmp_path, name, step):
    assert step_of(tmp_path / name, None) == step


def test_a_pattern_says_where_else_the_step_stands(tmp_path):
    assert step_of(tmp_path / "resnet18-b7.pt", r"-b(\d+)") == 7
    assert step_of(tmp_path / "resnet18.pt", r"-b(\d+)") is None
    assert step_of(tmp_path / "epoch=3-step=400.ckpt", r"epoch=(\d+)") == 3
    assert step_of(tmp_path / "net-x.pt", r"net-(.)") is None


def test_checkpoints_of_trainers_lie_in_a_folder_each_or_are_a_file_each(tmp_path):
    write(tmp_path / "checkpoint-200" / "model.safetensors")
    write(tmp_path / "checkpoint-200" / "optimizer.pt")
    write(tmp_path / "checkpoint-200" / "rng_state_0.pth")
    write(tmp_path / "checkpoint-30" / "pytorch_model.bin")
    write(tmp_path / "checkpoint-30" / "training_args.bin")
    write(tmp_path / "step_1000" / "net.pt")
    shards(tmp_path / "global_step400")
    write(tmp_path / "epoch=0-step=25.ckpt")
    for aside in ("last.ckpt", "config-step7.json", ".step_9.pt", "optimizer-step3.pt"):
        write(tmp_path / aside)
    found = checkpoint_files(tmp_path, params())
    assert {step: [p.name for p in files] for step, files in found.items()} == {
        25: ["epoch=0-step=25.ckpt"],
        30: ["pytorch_model.bin"],
        200: ["model.safetensors"],
        400: [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)],
        1000: ["net.pt"],
    }
    assert list(found) == sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_steps_are_those_that_are_asked_for(tmp_path, seed):
    draw = np.random.default_rng(seed)
    there = sorted({int(n) for n in draw.integers(1, 60, 12)})
    for step in there:
        write(tmp_path / f"step_{step}.pt")
    assert steps(tmp_path) == there
    some = [int(n) for n in draw.choice(there, 3, replace=False)]
    assert steps(tmp_path, steps=some) == sorted(some)
    every = int(draw.integers(1, 4)) * some[0]
    multiples = [n for n in there if n % every == 0]
    if multiples:
        assert steps(tmp_path, every=every) == multiples
    with pytest.raises(InputError, match=r"expected steps among .*, got 60"):
        steps(tmp_path, steps=[some[0], 60])
    with pytest.raises(InputError, match=r"expected a step to some of .* every 61"):
        steps(tmp_path, every=61)


@pytest.mark.parametrize(
    ("names", "settings", "says"),
    [
        ((), {}, "with a step in their names, as in step_100.pt, .* got nothing"),
        (("net_1.tar",), {}, r"got net_1.tar without one. Checkpoints end in .pt"),
        ((f"step_{1 << 63}.pt",), {}, r"steps below 2\^63, got that of step_9"),
        (("step_9.pt", "epoch_1.pt"), {}, "all epochs, got step_9.pt and epoch_1.pt"),
        (("last.pt",), {}, "got last.pt. Give `step`"),
        (("step_1.pt",), {"step": r"b(\d+)"}, r"that matches 'b\(\\d\+\)', .*step_1"),
        (("step_1.pt", "step_01.pt"), {}, "one checkpoint of step 1, got step_01.pt"),
        (("step_1/a.txt",), {}, "in step_1, or one file of arrays, got none"),
        (("step_1/a.pt", "step_1/b.pt"), {}, "got a.pt, b.pt. Name a file"),
    ],
)
def test_folders_that_hold_no_checkpoints_are_refused(tmp_path, names, settings, says):
    for name in names:
        write(tmp_path / name)
    with pytest.raises(InputError, match=says):
        checkpoint_files(tmp_path, params(**settings))


WAYS = {"step_{}": "step", "{:06d}": "step", "checkpoint-{}": "step", "epoch={}": ""}


@pytest.mark.parametrize("seed", range(4))
def test_epochs_and_steps_are_not_mixed_unless_a_pattern_says_where(tmp_path, seed):
    draw = np.random.default_rng(seed)
    ways = draw.choice(list(WAYS), 5)
    names = [way.format(10 + n) for n, way in enumerate(ways)]
    for name in names:
        write(tmp_path / f"{name}.pt")
    pattern = r"(\d+)\."
    assert steps(tmp_path, step=pattern) == list(range(10, 15))
    if len({WAYS[way] for way in ways}) == 1:
        assert steps(tmp_path) == list(range(10, 15))
        return
    with pytest.raises(InputError, match="all count steps, or all epochs"):
        steps(tmp_path)


def test_files_and_nothing_are_no_folders(tmp_path):
    write(tmp_path / "net.pt")
    with pytest.raises(InputError, match=r"got the file net.pt"):
        checkpoint_files(tmp_path / "net.pt", params())
    with pytest.raises(InputError, match=r"expected a folder of checkpoints.*got none"):
        checkpoint_files(tmp_path / "runs", params())


@pytest.mark.parametrize("name", ["../net.pt", "elsewhere.safetensors"])
def test_an_index_leads_to_files_beside_it_alone(tmp_path, name):
    write(tmp_path.parent / "net.pt")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}), encoding="utf-8")
    with pytest.raises(InputError, match=f"expected the file {re.escape(name)} that"):
        network_files(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_an_index_without_a_map_is_refused(tmp_path, text):
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="an index with a weight_map"):
        network_files(tmp_path)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"step": "(["}, "a regular expression, got"),
        ({"step": r"\d+"}, "with one group, got"),
        ({"steps": [1], "every": 2}, "steps cannot be combined with every"),
        ({"steps": []}, "at least 1 item"),
        ({"path": None}, "valid string"),
    ],
)
def test_a_choice_that_is_none_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        params(**settings)


class Lab:
    """A folder of checkpoints, a study of it, and a store in memory."""

    def __init__(self, folder):
        self.folder, self.store = folder, MemoryStore()

    def opened(self, *changes):
        text = STUDY
        for old, new in changes:
            text = text.replace(old, new)
        return opened_in(self.folder, load_study(text, file="along.yaml"))

    def run(self, *changes):
        opened = self.opened(*changes)
        report = run_study(opened.study, self.store, opened.files)
        assert report.record.failures == []
        self.nodes = report.plan.graph.nodes
        return report.record.counts

    def values(self, stage, variable):
        """Return a variable of each of a stage's nodes, by their coordinates."""
        return {
            node.point: self.store.read(node.receipt, [variable])[variable]
            for node in self.nodes[stage]
        }


@pytest.fixture
def lab(tmp_path):
    for step in (10, 20):
        write(tmp_path / "runs" / f"step_{step}.pt", saved({"model": state(step)}))
    return Lab(tmp_path)


def norm(seed):
    flat = torch.cat([t.flatten() for t in state(seed).values()])
    return float(flat.double().norm())


def executed(counts, stage):
    return counts["executed"].get(stage, 0)


def test_probes_run_along_training_and_stay_when_a_checkpoint_is_added(lab):
    counts = lab.run()
    assert executed(counts, "norms") == 2
    assert executed(counts, "last") == 0  # it is the one of step 20
    assert executed(counts, "tracked") == 1
    found = lab.values("norms", "norm_l2")
    assert found == {(n,): pytest.approx(norm(n), rel=1e-12) for n in (10, 20)}
    (tracked,) = lab.values("tracked", "checkpoint").values()
    assert tracked.tolist() == [10, 20]
    shards(lab.folder / "runs" / "checkpoint-5")
    counts = lab.run()
    assert executed(counts, "brought") == executed(counts, "norms") == 1
    assert executed(counts, "last") == 0  # the last step is the same
    assert lab.values("norms", "norm_l2") == {
        **found,
        (5,): pytest.approx(norm(7), rel=1e-12),
    }
    again = lab.run()
    assert not any(again["executed"].values())


def test_selections_of_the_same_files_are_one_node_and_renamed_files_too(lab):
    lab.run()
    lab.folder.joinpath("runs/step_20.pt").rename(lab.folder / "runs" / "s20.pt")
    counts = lab.run(("path: runs", r"path: runs, step: '(?:step_|s)(\d+)', every: 10"))
    assert not any(counts["executed"].values())
    counts = lab.run(("path: runs", r"path: runs, steps: [20], step: 's(\d+)'"))
    assert executed(counts, "brought") == 1
    assert executed(counts, "norms") == 0


def test_a_checkpoint_that_has_changed_is_measured_anew_alone(lab):
    lab.run()
    write(lab.folder / "runs" / "step_20.pt", saved({"model": state(3)}))
    counts = lab.run()
    assert executed(counts, "norms") == 1
    assert lab.values("last", "norm_l2")[()] == pytest.approx(norm(3), rel=1e-12)


def planned(lab, *changes):
    opened = lab.opened(*changes)
    return make_plan(opened.study, lab.store, opened.files)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("at: all", "at: [15]"),
            r"norms\.at\.0: expected one of the epochs 10, 20, got 15",
        ),
        (("path: runs", "path: elsewhere"), "path: expected a folder of checkpoints"),
        (("path: runs", "path: runs, every: 7"), "path: expected a step to some of 10"),
    ],
)
def test_what_a_folder_does_not_hold_is_refused_while_planning(lab, change, says):
    with pytest.raises(StudyError, match=says):
        planned(lab, change)


def test_a_file_that_holds_more_than_tensors_is_refused_while_planning(lab):
    write(lab.folder / "runs" / "step_30.pt", saved(net()))
    with pytest.raises(
        StudyError, match=r"path@30: expected tensors alone in step_30.pt"
    ):
        planned(lab)


BROUGHT = "weights.checkpoints, path: runs"
ALONE = [
    (", at: all", ""),
    *((line, "") for line in STUDY.splitlines() if re.search("tracked:|table:", line)),
]


def test_one_network_may_lie_in_a_folder_as_transformers_writes_it(lab):
    shards(lab.folder / "net")
    counts = lab.run((BROUGHT, "weights.import, path: net"), *ALONE)
    assert executed(counts, "norms") == 1
    write(lab.folder / "whole" / "model.safetensors", save_safetensors(state(7)))
    counts = lab.run((BROUGHT, "weights.import, path: whole"), *ALONE)
    assert executed(counts, "brought") == 1
    assert executed(counts, "norms") == 0  # the same weights in other files
    assert lab.values("norms", "norm_l2")[()] == pytest.approx(norm(7), rel=1e-12)


def test_a_folder_of_several_networks_is_no_file(lab):
    with pytest.raises(StudyError, match=r"take weights.checkpoints for a folder"):
        planned(lab, (BROUGHT, "weights.import, path: runs"), *ALONE)
