"""Weights that are vectors in a plane."""

import json

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.nodes import Weights
from curvflow.tasks.figures.vectors import planar_rows

SHAPES = {
    "layer1.weight": [3, 2],
    "layer1.bias": [3],
    "filters.0": [2],
    "filters.1": [2],
    "conv.weight": [2, 1, 2],
    "wide.weight": [2, 2, 2],
    "layer2.weight": [1, 3],
}


def network(shapes=SHAPES):
    text = json.dumps({"parameters": list(shapes.items())})
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    arrays = {"weights": np.arange(float(size)), "network": np.array(text)}
    return Weights("fit", "train", {}, arrays, "w")


def rows(tensor, **kwargs):
    result = planar_rows(network(**kwargs), tensor)
    return {name: row.tolist() for name, row in result}


def test_rows_of_a_matrix_are_taken_in_their_order():
    assert rows("layer1.weight") == {
        "layer1.weight[0]": [0, 1],
        "layer1.weight[1]": [2, 3],
        "layer1.weight[2]": [4, 5],
    }


def test_the_beginning_of_names_takes_several_tensors():
    assert rows("filters") == {"filters.0": [9, 10], "filters.1": [11, 12]}
    assert rows("layer1") == rows("layer1.weight")


def test_a_filter_over_one_channel_is_a_vector():
    assert rows("conv") == {"conv.weight[0]": [13, 14], "conv.weight[1]": [15, 16]}


def test_what_stands_behind_the_parameters_is_no_part_of_them():
    whole = network({"layer1.weight": [1, 2]})
    longer = {**whole.arrays, "weights": np.array([7.0, 8.0, 9.0, 9.0])}
    node = Weights("fit", "train", {}, longer, "w")
    assert [row.tolist() for _, row in planar_rows(node, "layer1")] == [[7, 8]]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            "layer1.weigth",
            "tensor: expected the name of a tensor whose rows have two entries, got "
            "'layer1.weigth'. Did you mean 'layer1.weight'?",
        ),
        ("layer2.weight", "got layer2.weight (1, 3). Did you mean 'layer1.weight'?"),
        ("wide", "got wide.weight (2, 2, 2). Known: conv.weight, filters.0"),
        ("layer1.bias", "got layer1.bias (3,)."),
    ],
)
def test_tensors_of_other_shapes_are_refused(tensor, message):
    with pytest.raises(InputError) as caught:
        rows(tensor)
    assert message in str(caught.value)


def test_a_network_without_such_tensors_has_none_to_offer():
    with pytest.raises(InputError, match="There is none"):
        rows("layer1", shapes={"layer1.weight": [4, 3]})
