"""Tensors of files are held against built-in models while planning."""

import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from curvflow.errors import StudyError
from curvflow.flows.graph.open_study import opened_in
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore

STUDY = """
study: planned
stages:
  digits: {use: data.digits}
  rows: {use: data.array, path: rows.npz}
  brought: {use: weights.import, path: net.safetensors, data: digits,
            model: {kind: mlp, hidden: [3]}}
  norms: {use: probe.norms, weights: brought}
"""
SHAPES = {
    "layer1.weight": (3, 64),
    "layer1.bias": (3,),
    "layer2.weight": (10, 3),
    "layer2.bias": (10,),
}
HIDDEN = "model: {kind: mlp, hidden: [3]}"


def arrays(**changes):
    named = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    named |= {name.replace("_", "."): array for name, array in changes.items()}
    return {name: array for name, array in named.items() if array is not None}


@pytest.fixture
def planned(tmp_path):
    inputs = np.arange(24.0).reshape(6, 4)
    np.savez(tmp_path / "rows.npz", inputs=inputs, targets=np.arange(6) % 3)

    def plan(content, *changes):
        save_file(content, tmp_path / "net.safetensors")
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        opened = opened_in(tmp_path, load_study(text, file="planned.yaml"))
        return make_plan(opened.study, MemoryStore(), opened.files)

    return plan


def test_tensors_of_the_model_are_planned(planned):
    assert planned(arrays()).counts("brought")["total"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"layer1_bias": None}, r"path: expected the tensor 'layer1\.bias' of shape"),
        ({"layer2_bias": np.ones(9)}, r"expected shape \(10,\) of the array 'layer2"),
        ({"layer3_bias": np.ones(9)}, r"'layer3\.bias' too\. Did you mean 'layer"),
        ({"layer1_weight": np.ones((64, 3))}, r"got \(64, 3\), its transpose"),
    ],
)
def test_other_tensors_are_refused_where_the_stage_is_written(planned, content, says):
    with pytest.raises(
        StudyError, match=r"planned\.yaml:\d+.*stages\.brought.*" + says
    ):
        planned(arrays(**content))


def test_each_value_of_an_axis_is_checked_on_its_own(planned):
    with pytest.raises(StudyError, match=r"expected shape \(5, 64\) of the array"):
        planned(
            arrays(),
            ("hidden: [3]", 'hidden: ["${width}"]'),
            ("stages:", "axes: {width: [3, 5]}\nstages:"),
        )


def test_a_model_is_checked_against_the_content_of_the_users_data(planned):
    with pytest.raises(StudyError, match=r"expected shape \(3, 4\) of the array"):
        planned(arrays(), ("data: digits", "data: rows"))


def test_a_module_of_ones_own_is_not_called_while_planning(planned, tmp_path):
    (tmp_path / "own_net.py").write_text(
        "raise RuntimeError('called')\n\n\ndef net():\n    ...\n"
    )
    model = 'model: {factory: "own_net:net", kwargs: {}}'
    assert planned(arrays(), (HIDDEN, model)).counts("brought")["total"] == 1
    assert "own_net" not in sys.modules
