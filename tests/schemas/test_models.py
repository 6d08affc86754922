"""Specifications of models."""

import pytest
from pydantic import TypeAdapter, ValidationError

from curvflow.schemas.kinds.shared.networks import Glorot, Normal, Uniform
from curvflow.schemas.models import ModelSpec, all_models, model_name, parse_model
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.models.mlp import Mlp
from tests.tasks.models.examples import EXAMPLES

MLP = {"kind": "mlp", "hidden": [3]}


def errors(value):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(ModelSpec).validate_python(value)
    return [(error["type"], error["loc"]) for error in caught.value.errors()]


def test_the_kind_distinguishes_models_and_a_factory_needs_none():
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
def test_the_only_key_distinguishes_initial_laws(init, expected):
    assert parse_model({**MLP, "init": init}).init == expected


def test_the_default_law_is_glorots():
    assert parse_model(MLP).init == Glorot(glorot=1.0)
    assert parse_model({"factory": "a:b"}).init is None


MODELS = [
    MLP,
    {"kind": "linear", "bias": False},
    {"kind": "logistic"},
    {"kind": "conv1d_xord", "separate_filters": False},
    {"kind": "lenet5", "pooling": "max"},
    {"kind": "cnn_cifar"},
    {"kind": "autoencoder", "hidden": [4, 2]},
    {"kind": "vgg", "depth": 11},
    {"kind": "vgg", "stages": [[2, 3], [4]], "width": 0.5},
    {"kind": "preresnet", "depth": 8},
    {"kind": "resnet", "norm": "group", "groups": 4, "shortcut": "padding"},
    {"kind": "quadratic_well", "eigenvalues": [2.0, 1.0]},
    {"kind": "normal_crossing", "powers": [[1, 2]]},
    {"kind": "deep_linear", "hidden": [3]},
    {"kind": "transformer", "vocabulary": 5, "positions": "rotary", "tied": True},
    {"kind": "attention_only", "context": 9, "norm": "none", "bias": False},
    {"kind": "lstm", "hidden": 3, "layers": 2, "dropout": 0.1},
    {"kind": "gru", "hidden": 3, "embedding": 2, "vocabulary": 5},
    {"kind": "vit", "patch_size": 2, "pooling": "mean", "mlp_ratio": 2.0},
    {"factory": "a:b"},
    *(example.spec for example in EXAMPLES.values()),
]


def test_every_kind_of_model_is_parsed_here():
    assert {model_name(plain) for plain in MODELS} == set(all_models())


def test_a_dump_parses_back():
    for plain in MODELS:
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
        ({"kind": "autoencoder", "hidden": []},
         ("value_error", ("autoencoder", "hidden"))),
        ({"kind": "vgg", "depth": 12}, ("literal_error", ("vgg", "depth"))),
        ({"kind": "vgg", "stages": []}, ("value_error", ("vgg", "stages"))),
        ({"kind": "vgg", "stages": [[2], []]}, ("value_error", ("vgg", "stages", 1))),
        ({"kind": "vgg", "stages": [[2], [0]]},
         ("greater_than", ("vgg", "stages", 1, 0))),
        ({"kind": "preresnet", "depth": 18}, ("value_error", ("preresnet", "depth"))),
        ({"kind": "lenet5", "dropout": 1.0}, ("less_than", ("lenet5", "dropout"))),
        ({"kind": "transformer", "width": 5, "heads": 2},
         ("value_error", ("transformer",))),
        ({"kind": "transformer", "width": 6, "heads": 2, "positions": "rotary"},
         ("value_error", ("transformer",))),
        ({"kind": "transformer", "positions": "none", "context": 4},
         ("value_error", ("transformer",))),
        ({"kind": "attention_only", "readout": "first"},
         ("value_error", ("attention_only",))),
        ({"kind": "resnet", "blocks": [2, 2]}, ("value_error", ("resnet",))),
        ({"kind": "resnet", "groups": 2}, ("value_error", ("resnet",))),
        ({"kind": "resnet", "widths": [6, 8, 8], "norm": "group"},
         ("value_error", ("resnet",))),
        ({"kind": "resnet", "widths": [8, 4, 8], "shortcut": "padding"},
         ("value_error", ("resnet",))),
        ({"kind": "gru", "hidden": 3, "readout": "first"}, ("value_error", ("gru",))),
        ({"kind": "lstm", "hidden": 3, "dropout": 0.1}, ("value_error", ("lstm",))),
    ],
)  # fmt: skip
def test_what_is_no_model_gets_one_clean_error(value, expected):
    assert errors(value) == [expected]
