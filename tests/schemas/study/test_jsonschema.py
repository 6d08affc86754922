import json

import pytest
from jsonschema import Draft202012Validator

from curvflow.schemas.study.document import read_document
from curvflow.schemas.study.jsonschema import study_schema
from tests.schemas.fakes import STUDY, edited, fake_kinds


@pytest.fixture(autouse=True)
def _fakes():
    with fake_kinds():
        yield


def complaints(text):
    data = json.loads(json.dumps(read_document(text, "s.yaml").root.plain()))
    return [
        error.json_path
        for error in Draft202012Validator(study_schema()).iter_errors(data)
    ]


def test_the_schema_is_itself_valid():
    Draft202012Validator.check_schema(study_schema())
    json.dumps(study_schema(), allow_nan=False)


def test_a_study_in_order_is_accepted():
    assert complaints(STUDY) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epochs: 500", 'epochs: "${seed}"'),
        ("hidden: [12]", 'hidden: ["${seed}"]'),
        ("{kind: mlp, hidden: [12]}", '"${rule.model}"'),
        ("kind: mlp", 'kind: "${rule.kind}"'),
        ("at: final", "at: {every: 10}"),
        ("at: final", "at: [0, 10]"),
        ("of: fit", "of: [fit]"),
        ("{use: fake.data, path: digits.npz}", "{use: 'my.kinds:data', anything: 1}"),
        ("sd: 0.29", "within: [1, 2]"),
    ],
)
def test_references_and_the_other_forms_are_accepted(old, new):
    assert complaints(edited((old, new))) == []


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("profiles:", "profile:", "$"),
        ("epochs: 500", "epoch: 500", "$.stages.fit"),
        ("epochs: 500", 'epochs: "500"', "$.stages.fit.epochs"),
        ("epochs: 500", "epochs: 0", "$.stages.fit.epochs"),
        ("epochs: 500", 'epochs: "n-${seed}"', "$.stages.fit.epochs"),
        ("hidden: [12]", "hiddenn: [12]", "$.stages.fit.model"),
        ("fake.probe", "fake.prob", "$.stages.trace.use"),
        ("use: fake.data, ", "", "$.stages.data"),
        ("weights: fit, ", "", "$.stages.trace"),
        ("weights: fit", "weights: [fit]", "$.stages.trace.weights"),
        ("path: digits.npz", "path: digits.npz, at: all", "$.stages.data"),
        ("at: final", "at: last", "$.stages.trace.at"),
        ("seed: 3", "seed: 0", "$.axes.seed"),
        ("  seed: 3", "  epoch: 3", "$.axes"),
        ("  data: {", "  my-data: {", "$.stages"),
        ("study: toys", "study: my toys", "$.study"),
        ("value: 7.18", "value: high", "$.expect[0].value"),
        ("    sd: 0.29", "    std: 0.29", "$.expect[0]"),
    ],
)
def test_a_broken_study_is_refused_at_its_path(old, new, path):
    assert path in complaints(edited((old, new)))


def test_editors_are_given_what_each_key_means():
    stage = study_schema()["$defs"]["fake.train"]
    assert stage["description"] == "Training."
    assert stage["properties"]["epochs"]["title"] == "Epochs"
    assert stage["properties"]["every"]["default"] == 100
    assert stage["properties"]["data"]["description"] == "a stage that returns Data"
    probe = study_schema()["$defs"]["fake.probe"]["properties"]
    assert "by default the data of its weights" in probe["data"]["description"]
    assert stage["required"] == ["use", "data", "model", "rule", "epochs"]


def test_models_of_the_same_name_in_two_kinds_do_not_meet():
    names = study_schema()["$defs"]
    assert "fake.train:Mlp" in names
    assert "Mlp" not in names
