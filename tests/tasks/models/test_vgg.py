"""VGG networks."""

import pytest
import torch

from curvflow.errors import InputError
from tests.tasks.models.examples import build

VGG = {"kind": "vgg"}
# Convolutions and biases, and one dense layer from 512 to 10.
PUBLISHED = {11: 9_225_610, 13: 9_410_122, 16: 14_719_818, 19: 20_029_514}


@pytest.mark.parametrize("depth", PUBLISHED)
def test_parameters_are_as_many_as_published(depth):
    net = build({**VGG, "depth": depth}, (3, 32, 32), 10)
    assert net.num_parameters == PUBLISHED[depth]
    convolutions = [shape for shape in net.layout.shapes if len(shape) == 4]
    assert len(convolutions) == depth - 3


def test_a_batch_norm_adds_two_parameters_and_two_statistics_per_channel():
    net = build({**VGG, "batch_norm": True}, (3, 32, 32), 10)
    assert net.num_parameters == 14_728_266
    assert net.statistics.size == 8448
    assert net.statistics.names[:2] == ("norm1.running_mean", "norm1.running_var")


def test_the_width_multiplies_all_channels():
    spec = {**VGG, "stages": [[8, 8], [20]], "width": 0.25}
    net = build(spec, (1, 4, 4), 2)
    channels = [shape[0] for shape in net.layout.shapes if len(shape) == 4]
    assert channels == [2, 2, 5]
    assert build({**spec, "width": 0.01}, (1, 4, 4), 2).layout.shapes[0] == (1, 1, 3, 3)


def test_images_too_small_for_five_poolings_are_refused():
    with pytest.raises(InputError) as caught:
        build(VGG, (1, 28, 28), 10)
    assert str(caught.value) == (
        "model: expected at least 2x2 pixels to be pooled, got 1x1. Take larger "
        "images, or a model that shrinks them less."
    )


def test_dropout_comes_before_every_dense_layer():
    spec = {**VGG, "stages": [[2]], "hidden": [4], "dropout": 0.5}
    net = build(spec, (1, 4, 4), 2)
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.ones(2, *shape)

    weights = torch.zeros(2, net.num_parameters)
    net.training_outputs(weights, torch.zeros(2, 0), torch.ones(1, 3, 1, 4, 4), draw)
    assert shapes == [(3, 8), (3, 4)]
