"""Specifications of models."""

import pytest
from pydantic import TypeAdapter, ValidationError

from curvflow.schemas.initial import Glorot, Normal, Uniform
from curvflow.schemas.models import ModelSpec, parse_model
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.models.mlp import Mlp

MLP = {"kind": "mlp", "hidden": [3]}


def errors(value):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(ModelSpec).validate_python(value)
    return [(error["type"], error["loc"]) for error in caught.value.errors()]


def test_the_kind_tells_models_apart_and_a_factory_needs_none():
    assert isinstance(parse_model(MLP), Mlp)
    assert isinstance(parse_model({"kind": "linear"}), Linear)
    assert isinstance(parse_model({"factory": "a.b:c"}), FactoryModel)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ({"normal": 0.03}, Normal(normal=0.03)),
        ({"uniform": 1}, Uniform(uniform=1.0)),
        ({"glorot": 2.0}, Glorot(glorot=2.0)),
    ],
)
def test_the_only_key_tells_initial_laws_apart(init, expected):
    assert parse_model({**MLP, "init": init}).init == expected


def test_the_default_law_is_glorots():
    assert parse_model(MLP).init == Glorot(glorot=1.0)
    assert parse_model({"factory": "a:b"}).init is None


def test_a_dump_parses_back():
    for plain in (MLP, {"kind": "linear", "bias": False}, {"factory": "a:b"}):
        spec = parse_model(plain)
        assert parse_model(spec.model_dump(mode="json")) == spec
        assert TypeAdapter(ModelSpec).validate_python(spec) == spec


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"kind": "mpl", "hidden": [3]}, ("union_tag_invalid", ())),
        ({"hidden": [3]}, ("union_tag_not_found", ())),
        (3, ("union_tag_not_found", ())),
        ({"kind": "mlp"}, ("missing", ("mlp", "hidden"))),
        ({"kind": "mlp", "hidden": [0]}, ("greater_than", ("mlp", "hidden", 0))),
        ({"kind": "mlp", "hidden": ["3"]}, ("int_type", ("mlp", "hidden", 0))),
        ({**MLP, "widht": 3}, ("extra_forbidden", ("mlp", "widht"))),
        ({**MLP, "init": {"norml": 1}}, ("union_tag_invalid", ("mlp", "init"))),
        ({**MLP, "init": {"normal": 1, "uniform": 1}},
         ("union_tag_not_found", ("mlp", "init"))),
        ({**MLP, "init": {"normal": 0}},
         ("greater_than", ("mlp", "init", "normal", "normal"))),
        ({**MLP, "factory": "a:b"}, ("extra_forbidden", ("mlp", "factory"))),
        ({"factory": "a"}, ("string_pattern_mismatch", ("factory", "factory"))),
    ],
)  # fmt: skip
def test_what_is_no_model_gets_one_clean_error(value, expected):
    assert errors(value) == [expected]
