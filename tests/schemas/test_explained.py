"""Explanations of every kind are complete, and every example is a study."""

import sys
from unittest import mock

import numpy as np
import pytest

from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.open_study import SourceFiles
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.schemas import explanations as explanation
from curvflow.schemas.explanations import explanations
from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.study.study import load_study
from tests.loops import for_each

TOLD = explanations()
SPIRALS = """
import numpy as np


def spirals(turns):
    angle = np.linspace(0.1, 2 * np.pi * turns, 40)
    half = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    return np.concatenate([half, -half]), np.repeat([0, 1], len(half))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(20, 3)), np.arange(20) % 2
    np.savez(folder / "measured.npz", inputs=inputs, targets=targets)
    shapes = {"1": (32, 64), "2": (10, 32)}
    layers = {f"layer{n}.weight": draw.normal(size=s) for n, s in shapes.items()}
    biases = {f"layer{n}.bias": np.zeros(s[0]) for n, s in shapes.items()}
    np.savez(folder / "net.npz", **layers, **biases)
    watched = {"step": np.arange(3), "sharpness": np.arange(3.0), "identity": "{}"}
    np.savez(folder / "monitor.npz", **watched)
    (folder / "nets.py").write_text(SPIRALS)
    with mock.patch("sys.path", [str(folder), *sys.path]):
        yield folder


@for_each("name", sorted(TOLD))
def test_the_example_of_a_kind_uses_it_and_can_be_planned(folder, name):
    study = load_study(TOLD[name].example, file="example.yaml")
    nodes = list(expand(study, SourceFiles(folder)))
    assert name in {node.kind.name for node in nodes}
    assert len(nodes) >= len(study.stages)


def test_every_built_in_kind_is_explained():
    assert sorted(TOLD) == [n for n, kind in all_kinds().items() if not kind.home]


@for_each("name", sorted(TOLD))
def test_no_field_is_empty_and_none_has_its_reason(name):
    explanation = TOLD[name]
    for field in ("formula", "source", "cost", "example", "page"):
        assert getattr(explanation, field).strip(), f"{name}: {field}"
    for field in ("source", "cost"):
        assert getattr(explanation, field).rstrip(".") != "none", f"{name}: {field}"
    assert max(map(len, explanation.example.splitlines())) <= 78


@for_each("name", sorted(TOLD))
def test_units_are_of_parameters(name):
    fields = find_kind(name).params.model_fields
    for field in TOLD[name].units:
        assert field.partition(".")[0] in fields, f"{name}: {field}"


@pytest.mark.parametrize("field", ["nbeta", "lr", "localization"])
def test_chains_report_their_settings_in_the_units_of_these(field):
    output = find_kind("probe.llc").output(field)
    assert output.units == TOLD["probe.llc"].units[field] != "1"


def test_beginnings_of_examples_are_studies_themselves():
    for text in (explanation.TRAINED, explanation.REPEATED):
        assert "fit" in load_study(text, file="example.yaml").stages


def test_no_word_of_it_is_part_of_the_code_that_is_compared(folder):
    study = load_study(explanation.REPEATED, file="example.yaml")
    prints = Fingerprints(folder)
    for node in expand(study, SourceFiles(folder)):
        reached = prints.of(node).definitions
        assert reached
        assert not [name for name in reached if "xpla" in name.lower()]
