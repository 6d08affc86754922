"""Names and sizes of tensors that a model tells unbuilt are those that are built."""

import pytest

from curvflow.schemas.checks.model_data_checks import input_form, tensor_sizes
from curvflow.schemas.models import parse_model
from tests.tasks.models.examples import EXAMPLES, build

CASES = [
    ({"kind": "mlp", "hidden": [4, 3]}, (5,)),
    ({"kind": "mlp", "hidden": [], "bias": False}, (5,)),
    ({"kind": "linear"}, (5,)),
    ({"kind": "linear", "bias": False}, (5,)),
    ({"kind": "logistic"}, (5,)),
    ({"kind": "lenet5"}, (1, 28, 28)),
]
OTHERS = [
    *CASES[:-1],
    ({"kind": "deep_linear", "hidden": [4, 2]}, (5,)),
    ({"kind": "autoencoder", "hidden": [4, 2]}, (3,)),
    ({"kind": "autoencoder", "hidden": [2], "bias": False}, (3,)),
    ({"kind": "conv1d_xord", "filters": 4}, (5, 2)),
    ({"kind": "conv1d_xord", "filters": 4, "separate_filters": False}, (5, 2)),
    ({"kind": "normal_crossing", "powers": [[1], [2, 1], [1, 1, 3]]}, (1,)),
    ({"kind": "quadratic_well", "eigenvalues": [1.0, 2.0, 3.0]}, (1,)),
]


@pytest.mark.parametrize(("spec", "shape"), CASES)
def test_tensors_are_those_of_the_network(spec, shape):
    assert parse_model(spec).tensors == build(spec, shape, 3).layout.names


def test_a_model_known_only_once_built_names_none():
    assert parse_model({"kind": "preresnet", "depth": 8}).tensors == ()


@pytest.mark.parametrize(("spec", "shape"), OTHERS)
def test_sizes_of_tensors_are_those_of_the_network(spec, shape):
    layout = build(spec, shape, 3).layout
    inputs = shape[0] * (shape[1] if len(shape) > 1 else 1)
    sizes = tensor_sizes(parse_model(spec), inputs, 3)
    assert sizes == dict(zip(layout.names, layout.sizes, strict=True))


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_models_that_see_images_are_built_for_images_alone(example):
    model = parse_model(example.spec)
    assert (input_form(model) == "image") == (len(example.shape) == 3)
    if input_form(model) == "image":
        assert tensor_sizes(model, 12, 3) == {}


def test_only_a_users_module_declares_what_it_sees():
    module = parse_model({"factory": "nets:make"})
    assert input_form(module) == "unknown"
    assert tensor_sizes(module, 5, 3) == {}
