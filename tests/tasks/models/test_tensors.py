"""Names of tensors that a model tells unbuilt are those of the network built."""

import pytest

from curvflow.schemas.models import parse_model
from tests.tasks.models.examples import build

CASES = [
    ({"kind": "mlp", "hidden": [4, 3]}, (5,)),
    ({"kind": "mlp", "hidden": [], "bias": False}, (5,)),
    ({"kind": "linear"}, (5,)),
    ({"kind": "linear", "bias": False}, (5,)),
    ({"kind": "logistic"}, (5,)),
    ({"kind": "lenet5"}, (1, 28, 28)),
]


@pytest.mark.parametrize(("spec", "shape"), CASES)
def test_tensors_are_those_of_the_network(spec, shape):
    assert parse_model(spec).tensors == build(spec, shape, 3).layout.names


def test_a_model_that_only_building_tells_names_none():
    assert parse_model({"kind": "preresnet", "depth": 8}).tensors == ()
