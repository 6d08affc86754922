"""`curvflow kinds`: every kind in full, for whoever writes a study."""

import json
import re
import sys
from unittest import mock

import pytest

from curvflow.cli.text.kind_page import kind_page, parameter_page
from curvflow.schemas import kinds
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.models import all_models
from curvflow.schemas.rules import all_rules
from tests.loops import for_each

NAMES = sorted(all_kinds())
MINE = '''\
"""A probe of one's own."""

from pydantic import Field

import curvflow
from curvflow import Params, Variable, Weights


class Point(Params):
    x: int = Field(ge=1, le=9, multiple_of=2)
    y: tuple[float, float] = (0.0, 1.0)


class Settings(Params):
    points: tuple[Point, ...] = Field(strict=False, min_length=2)
    top: float = Field(1.0, lt=5)
    tags: dict[str, int] = Field(default_factory=dict)
    note: str = ""


@curvflow.stage("mine.largest", version=3, outputs=[Variable("largest", "largest")])
def largest(weights: Weights, settings: Settings):
    """Largest weight."""
    return {"largest": abs(weights["weights"]).max()}
'''


def page(curvflow, *name: str) -> str:
    """Return a page without its line breaks."""
    said = curvflow("kinds", *name)
    assert said.code == 0, said.err
    return re.sub(r"\s+", " ", said.out)


def fields(schema: dict) -> set[str]:
    """Return the names of all fields at any depth of a JSON Schema."""
    nested = schema.get("$defs", {}).values()
    names = set(schema.get("properties", {}))
    return names.union(*map(fields, nested))


def test_kinds_are_listed_with_their_summaries(curvflow):
    out = curvflow("kinds").out
    assert {"train", "data.digits", "probe.hessian_trace"} <= set(out.split())
    assert max(map(len, out.splitlines())) <= 110


def test_json_is_the_declaration(curvflow):
    (said,) = json.loads(curvflow("kinds", "train", "--json").out)
    assert said["name"] == "train"
    assert "Sgd" in said["params"]["$defs"]


@for_each("name", NAMES)
def test_a_page_fits_80_columns(name):
    for whole in (False, True):
        lines = kind_page(all_kinds()[name], whole=whole).splitlines()
        assert max(map(len, lines)) <= 80
        assert whole or len(lines) - listed(lines) < (173 if listed(lines) else 200)


def listed(lines):
    """Return how many lines of a page list rules and models, of which come more."""
    pattern = r"^  (?:model|rule): one of \d+ forms.*?^    one in full: [^\n]*\n"
    lists = re.findall(pattern, "\n".join(lines), re.DOTALL | re.MULTILINE)
    number = sum(text.count("\n") for text in lists)
    assert number < 2 * (len(all_rules()) + len(all_models())) - 20
    return number


@for_each("name", NAMES)
def test_a_whole_page_names_every_field_input_and_variable(name):
    kind = all_kinds()[name]
    named = set(re.findall(r"[\w.]+", kind_page(kind, whole=True)))
    schema = kind.params.model_json_schema()
    assert fields(schema) | set(kind.inputs) <= named
    assert {variable.name for variable in kind.outputs} <= named


def test_train_says_what_a_rule_can_be(curvflow):
    said = page(curvflow, "train", "--all")
    rules = " | ".join(f"{{rule: {name}, ...}}" for name in all_rules())
    assert f"rule: {rules} | {{preset: text, ...}} (required); the learn" in said
    assert "lr: number > 0 (required); learning rate" in said
    assert "lr: number > 0, default 0.001; learning rate" in said
    assert "momentum: number 0 <= . < 1, default 0.0; decay of the velocity" in said
    assert "nesterov: true | false, default false" in said
    assert "beta2: number 0 <= . < 1, default 0.999" in said
    assert "eps: number > 0, default 1e-08" in said


def test_train_says_what_a_model_and_its_init_can_be(curvflow):
    said = page(curvflow, "train", "--all")
    models = " | ".join(
        "{factory: text, ...}" if name == "factory" else f"{{kind: {name}, ...}}"
        for name in all_models()
    )
    assert f"model: {models} (required); the network" in said
    assert "hidden: [integer > 0, ...] (required)" in said
    assert "relu | tanh | gelu | sigmoid | identity, default relu" in said
    assert "{glorot: number > 0} | {variance_scaling: number > 0, ...}" in said
    assert "| {fan_in: number > 0, ...} | null, default {glorot: 1.0}" in said
    assert said.count("standard deviation, not the variance") == 1
    assert "checkpoints: {every: integer >= 1} | null, default null" in said
    assert "at: final" in said  # of the weights it may begin with
    assert "at: final" not in page(curvflow, "data.xor")


def test_train_lists_its_rules_and_models_and_how_to_see_one(curvflow):
    out = curvflow("kinds", "train").out
    for name in (*all_rules(), *all_models(), "preset"):
        assert f"\n    {name}: " in out
    assert "one in full: curvflow kinds train rule.adagrad\n" in out
    assert "standard deviation, not the variance" not in out  # of initial weights
    assert "{every: integer >= 1}: Checkpoints that are kept" in out


@pytest.fixture(scope="module")
def train_page():
    return re.sub(r"\s+", " ", kind_page(all_kinds()["train"], whole=True))


@for_each("name", [*all_rules(), "preset"])
def test_one_rule_is_shown_with_its_parameters(name, train_page):
    kind = all_kinds()["train"]
    first, *rest = parameter_page(kind, f"rule.{name}").splitlines()
    assert first.startswith(("{preset: text, ...}", f"{{rule: {name}, ...}}: "))
    assert first in train_page
    assert any(re.match(r"  \w+: ", line) for line in rest)


def test_a_parameter_is_shown_in_full(curvflow):
    assert curvflow("kinds", "train", "epochs").out == (
        "epochs: integer >= 1 [epoch] (required); passes over the training data\n"
    )
    said = page(curvflow, "train", "model.mlp")
    assert said.startswith("{kind: mlp, ...}: Dense layers")
    assert "standard deviation, not the variance" in said
    assert "hidden: [integer > 0, ...] (required); widths" in said
    assert "lenet5" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "modl"], "train: expected a parameter, got 'modl'. Did you mean"),
        (["train", "rule.sdg"], "train: expected a form of rule, got 'sdg'. Did you"),
        (
            ["train", "epochs.sgd"],
            "train: expected a form of epochs, got 'sgd'. It has none.",
        ),
        (["train", "rule", "--json"], "PARAMETER cannot be combined with --json"),
    ],
)
def test_a_parameter_that_is_none_is_refused(curvflow, arguments, message):
    said = curvflow("kinds", *arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


def test_a_probe_says_its_choices_epochs_inputs_and_variables(curvflow):
    said = page(curvflow, "probe.hessian_trace")
    assert "distribution: rademacher | gaussian, default rademacher" in said
    epochs = "final | all | integer >= 0 | {every: integer >= 1} | [integer >= 0, ...]"
    assert f"at: {epochs}" in said
    assert "weights: a stage that returns Weights (required)" in said
    assert "data: a stage that returns Data, by default the data of its weights" in said
    assert "layer_trace (layer) float64 [loss / parameter^2]: trace of the" in said
    assert "${axis.field}" in said


def test_a_statistic_takes_one_stage_or_several(curvflow):
    said = page(curvflow, "aggregate.summary")
    assert "of: a stage that returns Numbers or a list of such stages (req" in said
    assert "confidence: number 0 < . < 1 [1], default 0.95" in said


def test_a_kind_without_parameters_says_so(curvflow):
    assert "parameters none returns Numbers" in page(curvflow, "probe.norms")


def test_a_kind_of_one_s_own_is_found_in_the_current_folder(
    curvflow, tmp_path, monkeypatch
):
    (tmp_path / "largest_kind.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    with mock.patch.dict(kinds._added):
        said = page(curvflow, "largest_kind:largest")
    assert "mine.largest (version 3) Largest weight." in said
    assert "points: [{x: integer 1 <= . <= 9, a multiple of 2, ...}, ...]" in said
    assert "of at least 2 (required)" in said
    assert "y: [number, number], default [0.0, 1.0]" in said
    assert "top: number < 5, default 1.0" in said
    assert "tags: mapping to integer (optional)" in said
    assert "note: text, default ''" in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("probe.norm", "Did you mean 'probe.norms'? For a kind of yours write use: "),
        ("nowhere:probe", "kinds: expected a module that can be imported, got 'nowh"),
        ("json:dumps", "expected a function decorated with @curvflow.stage, got 'js"),
    ],
)
def test_an_unknown_kind_is_refused_as_in_a_study(curvflow, name, message):
    said = curvflow("kinds", name)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1
