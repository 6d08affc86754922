"""LeNet-5."""

import pytest
import torch

from curvflow.errors import InputError
from tests.tasks.models.examples import build

LENET = {"kind": "lenet5"}


@pytest.mark.parametrize(("shape", "padding"), [((1, 28, 28), 2), ((1, 32, 32), 0)])
def test_it_has_61706_parameters_for_digits(shape, padding):
    net = build({**LENET, "padding": padding}, shape, 10)
    assert net.num_parameters == 61706


@pytest.mark.parametrize("shape", [(784,), (28, 28)])
def test_what_is_no_image_is_refused_by_name(shape):
    with pytest.raises(InputError) as caught:
        build(LENET, shape, 10)
    assert str(caught.value) == (
        "model: expected images of shape (channels, height, width) for lenet5, got "
        f"inputs of shape {shape}. Take images that are not flattened, or a dense "
        "model."
    )


def test_small_images_are_refused_where_they_end():
    with pytest.raises(InputError) as caught:
        build({**LENET, "padding": 0}, (1, 10, 11), 10)
    assert str(caught.value) == (
        "model: expected at least 5 pixels a side at conv2, got 3x3. Take larger "
        "images, or a model that shrinks them less."
    )
    with pytest.raises(InputError, match="expected at least 2x2 pixels to be pooled"):
        build({**LENET, "padding": 0}, (1, 15, 15), 10)


def test_dropout_leaves_out_dense_units_alone():
    net = build({**LENET, "dropout": 0.5}, (1, 12, 12), 3)
    weights = torch.ones(2, net.num_parameters)
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.zeros(2, *shape)

    none = torch.zeros(2, 0)
    outputs, _ = net.training_outputs(weights, none, torch.ones(1, 4, 1, 12, 12), draw)
    assert shapes == [(4, 120), (4, 84)]
    assert (outputs == 1).all()  # only the last bias is left
