"""Rules written as presets."""

from json import dumps

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.presets import all_presets, written_out
from curvflow.schemas.rules import RuleSpec
from curvflow.schemas.study.jsonschema import study_schema
from curvflow.schemas.study.study import load_study
from tests.loops import for_each

ADAPTER = TypeAdapter(RuleSpec)
NAME = "jarvis-2021/xor-tanh/metric-small"
FITTED = {
    "rule": "metric",
    "lr": 0.12,
    "rate": 0.008,
    "init": {"normal": 0.1 / 12**0.5, "bias": 0.1},
}
CASES = [(name, variant) for name, found in all_presets().items() for variant in found]


def study(*rules):
    axis = {f"r{number}": rule for number, rule in enumerate(rules)}
    fit = {
        "use": "train",
        "data": "data",
        "model": {"kind": "mlp", "hidden": [12]},
        "rule": "${rule}",
        "epochs": 400,
    }
    stages = {"data": {"use": "data.xor"}, "fit": fit}
    return {"study": "s", "axes": {"rule": axis}, "stages": stages}


def forms(plain, folder):
    """Return the canonical forms of the nodes' parameters, which enter their keys."""
    loaded = load_study(dumps(plain), file="study.yaml")
    nodes = expand(loaded, SourceFiles(folder))
    return [node.code for node in nodes if node.stage == "fit"]


@for_each("name, variant", CASES)
def test_every_variant_of_every_preset_is_a_rule(name, variant):
    found = ADAPTER.validate_python({"preset": name, "variant": variant})
    assert found == ADAPTER.validate_python(all_presets()[name][variant])


def test_a_preset_is_its_first_variant_unless_one_is_named():
    assert written_out({"preset": NAME}) == FITTED
    assert written_out({"preset": NAME, "variant": None}) == FITTED
    printed = written_out({"preset": NAME, "variant": "printed"})
    assert printed == {**FITTED, "init": {"normal": 0.03}}


def test_further_keys_replace_fields_of_the_preset():
    own = {"preset": NAME, "rate": 0.1, "form": "raw", "init": {"glorot": 1.0}}
    expected = {**FITTED, "rate": 0.1, "form": "raw", "init": {"glorot": 1.0}}
    assert written_out(own) == expected


def test_what_names_no_preset_is_left_as_it_is():
    for value in ({"rule": "sgd", "lr": 0.1}, "sgd", None, [1]):
        assert written_out(value) is value


def test_what_enters_the_key_is_the_rule_written_out(tmp_path):
    short, long, other = forms(
        study({"preset": NAME}, FITTED, {"preset": NAME, "variant": "printed"}),
        tmp_path,
    )
    assert short == long
    assert short != other


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"preset": NAME, "lr": 0}, ("greater_than", ("metric", "lr"))),
        ({"preset": NAME, "tau": 3}, ("extra_forbidden", ("metric", "tau"))),
        ({"preset": "x"}, ("value_error", ())),
        ({"preset": NAME, "variant": "exact"}, ("value_error", ())),
        ({"preset": NAME, "variant": ["exact"]}, ("value_error", ())),
        ({"preset": [NAME]}, ("value_error", ())),
        ({"preset": NAME, "rule": "metric"}, ("value_error", ())),
    ],
)
def test_what_is_no_preset_gets_one_clean_error(value, expected):
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(value)
    found = [(error["type"], error["loc"]) for error in caught.value.errors()]
    assert found == [expected]


@pytest.fixture(scope="module")
def validator():
    return Draft202012Validator(study_schema())


@pytest.mark.parametrize(
    ("rule", "is_accepted"),
    [
        ({"preset": NAME}, True),
        ({"preset": NAME, "variant": "fitted", "lr": 0.1}, True),
        ({"preset": "${name}"}, True),
        ({"rule": "sgd", "lr": 0.1}, True),
        ({"preset": NAME, "variant": "exact"}, False),
        ({"preset": "jarvis-2021/xor-tanh/metric"}, False),
        ({"rule": "metric", "lr": 0.1}, False),
        ({"prset": NAME}, False),
    ],
)
def test_the_json_schema_of_a_study_knows_presets(rule, is_accepted, validator):
    plain = study({"rule": "sgd", "lr": 0.1})
    plain["stages"]["fit"]["rule"] = rule
    errors = list(validator.iter_errors(plain))
    assert (not errors) == is_accepted
