"""Batch normalisation of a batch of models."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.networks.parts import batch_norm, chain, convolution, network_of
from curvflow.tasks.numerics import stream

NORM = chain(convolution("conv", 2, 1), batch_norm("norm"))


def passed(net, weights, x):
    return net.training_outputs(*net.split(weights), x, torch.ones)


def drawn(net, models=2):
    shape = (models, net.num_parameters + net.statistics.size)
    return torch.randn(shape, generator=stream(0, "t"), dtype=torch.float64).abs()


def test_the_batch_norm_of_a_batch_has_the_moments_that_its_parameters_say():
    net = network_of(NORM, (1, 3, 3))
    weights = drawn(net)
    x = torch.randn(1, 7, 1, 3, 3, generator=stream(0, "x"), dtype=torch.float64)
    outputs, _ = passed(net, weights, x)
    tensors = net.layout.named(net.split(weights)[0])
    near = {"rtol": 1e-3, "atol": 1e-12}
    torch.testing.assert_close(outputs.mean((1, 3, 4)), tensors["norm.shift"], **near)
    deviation = outputs.std((1, 3, 4), unbiased=False)
    torch.testing.assert_close(deviation, tensors["norm.scale"], **near)


def test_running_moments_come_to_those_of_the_data_the_variance_unbiased():
    net = network_of(NORM, (1, 3, 3))
    weights = drawn(net)
    parameters, statistics = net.split(weights)
    x = torch.randn(2, 4, 1, 3, 3, generator=stream(0, "x"), dtype=torch.float64)
    for _ in range(300):
        _, statistics = net.training_outputs(parameters, statistics, x, torch.ones)
    tensors = net.layout.named(parameters)
    pixels = x.reshape(2, 1, 36)
    seen = tensors["conv.weight"].flatten(2) * pixels + tensors["conv.bias"][..., None]
    result = net.statistics.named(statistics)
    torch.testing.assert_close(result["norm.running_mean"], seen.mean(2))
    torch.testing.assert_close(result["norm.running_var"], seen.var(2, unbiased=True))


def test_the_statistics_given_are_left_as_they_are():
    net = network_of(NORM, (1, 3, 3))
    weights = drawn(net)
    before = weights.clone()
    _, after = passed(net, weights, torch.ones(1, 4, 1, 3, 3).double())
    assert torch.equal(weights, before)
    assert not torch.equal(after, net.split(weights)[1])


def test_one_sample_of_one_pixel_has_no_variance_and_is_refused():
    net = network_of(NORM, (1, 1, 1))
    x = torch.ones(1, 2, 1, 1, 1).double()
    assert passed(net, drawn(net), x)[0].isfinite().all()
    with pytest.raises(InputError) as caught:
        passed(net, drawn(net), x[:, :1])
    assert str(caught.value) == (
        "model: expected more than one sample in every batch at norm, where images "
        "have one pixel, got 1. Set drop_last, or another batch_size."
    )


def test_models_may_share_what_they_normalise():
    net = network_of(batch_norm("norm"), (2, 3, 3))
    weights = drawn(net)
    x = torch.randn(1, 4, 2, 3, 3, generator=stream(0, "x"), dtype=torch.float64)
    expanded = x.expand(2, -1, -1, -1, -1)
    for shared, apart in zip(
        passed(net, weights, x), passed(net, weights, expanded), strict=True
    ):
        torch.testing.assert_close(shared, apart)
    torch.testing.assert_close(net.outputs(weights, x), net.outputs(weights, expanded))
