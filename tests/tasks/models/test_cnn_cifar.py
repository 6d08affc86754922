"""The convolutional network of the regularisation study."""

import torch

from tests.tasks.models.examples import build


def test_it_has_as_many_parameters_as_in_the_study():
    net = build({"kind": "cnn_cifar"}, (3, 32, 32), 10)
    assert net.num_parameters == 4_677_872
    assert net.layout.shapes[0] == (32, 3, 7, 7)
    assert net.layout.shapes[4] == (500, 9216)


def test_other_widths_are_those_of_the_channels_and_of_the_dense_layers():
    spec = {"kind": "cnn_cifar", "channels": [8, 16], "hidden": [125, 25, 12, 10]}
    net = build(spec, (3, 32, 32), 10)
    shapes = [shape for shape in net.layout.shapes if len(shape) > 1]
    assert shapes[:2] == [(8, 3, 7, 7), (16, 8, 2, 2)]
    assert shapes[2:] == [(125, 2304), (25, 125), (12, 25), (10, 12), (10, 10)]


def test_dropout_follows_every_dense_hidden_layer():
    net = build({"kind": "cnn_cifar", "dropout": 0.5}, (1, 10, 10), 3)
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.ones(2, *shape)

    weights = torch.zeros(2, net.num_parameters)
    x = torch.ones(1, 4, 1, 10, 10)
    net.training_outputs(weights, torch.zeros(2, 0), x, draw)
    assert shapes == [(4, 500), (4, 100), (4, 50), (4, 20)]
