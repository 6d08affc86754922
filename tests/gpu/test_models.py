"""Every model on a GPU: outputs, gradients and products with its matrices."""

import pytest
import torch

from curvflow.tasks.numerics import BatchedHessian, sample_losses
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from tests.gpu.cards import DEVICE, assert_alike, on_a_gpu
from tests.tasks.models.examples import EXAMPLES
from tests.tasks.models.test_all import MODELS, SAMPLES, inputs_of, normal, weights_of

pytestmark = on_a_gpu
every = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
CPU = torch.device("cpu")


def uniform(shape):
    """Return the numbers that training draws, the same for both devices."""
    count = int(torch.tensor(shape).prod())
    drawn = (0.5 + torch.arange(MODELS * count)) * 0.6180339887498949 % 1
    return drawn.double().reshape(MODELS, *shape)


def outputs_and_slopes(example, device, in_training):
    net, weights = weights_of(example)
    x = inputs_of(example, 1).to(device)
    y = normal(MODELS, SAMPLES, *example.out_shape, purpose="y").to(device)
    parameters, statistics = net.split(weights.to(device))
    parameters = parameters.clone().requires_grad_()
    if in_training:
        found, after = net.training_outputs(parameters, statistics, x, uniform)
    else:
        found = net.outputs(torch.cat([parameters, statistics], dim=1), x)
        after = statistics
    (slopes,) = torch.autograd.grad((found - y).square().sum(), parameters)
    assert found.device == slopes.device == after.device == device
    return found, after, slopes


@every
@pytest.mark.parametrize("in_training", [True, False], ids=["training", "evaluation"])
def test_outputs_gradients_and_statistics_are_the_same(example, in_training):
    there, here = (
        outputs_and_slopes(example, device, in_training) for device in (DEVICE, CPU)
    )
    for a, b in zip(there, here, strict=True):
        assert_alike(a, b, rtol=1e-11)


def products(example, device, order):
    net, weights = weights_of(example)
    parameters, statistics = net.split(weights.to(device))
    y = torch.arange(SAMPLES)[None] % example.outputs
    if example.of_tokens:
        y = y.unsqueeze(2).expand(-1, -1, *example.shape)

    def losses(weights, inputs, targets):
        return sample_losses("cross_entropy")(net.outputs(weights, inputs), targets)

    operator = BatchedHessian(
        losses,
        parameters,
        inputs_of(example, 1).to(device),
        y.to(device),
        fixed_MS=statistics,
        order=order,
    )
    columns = normal(MODELS, net.num_parameters, 3, purpose="v")
    found = operator @ columns.to(device)
    assert found.device == operator.device == device
    return found


@every
@pytest.mark.parametrize("order", ORDERS)
def test_products_with_the_hessian_are_the_same(example, order):
    there = products(example, DEVICE, order)
    assert_alike(there, products(example, CPU, order), rtol=1e-10)
