"""Dense layers, and their derivatives forward."""

import pytest
import torch
from torch.func import grad, hessian, jvp, vmap
from torch.utils.flop_counter import FlopCounterMode

from curvflow.tasks.networks.layers import dense_layers
from tests.tasks.rules.checks import started

MODELS, ROWS = 2, 5


def layers(*, bias):
    network = dense_layers([6, 4, 3], torch.tanh, bias=bias)
    weights = started(MODELS, network.num_parameters)
    inputs = started(1, ROWS * 6).view(1, ROWS, 6)
    return network, weights, inputs


def total(network, weights, inputs):
    return network.outputs(weights, inputs).sin().sum()


@pytest.mark.parametrize("bias", [True, False])
def test_a_derivative_forward_is_that_of_the_jacobian(bias):
    network, weights, inputs = layers(bias=bias)
    along = started(MODELS, weights.shape[1]).flip(1)
    found = jvp(lambda w: network.outputs(w, inputs), (weights,), (along,))[1]
    jacobian = torch.func.jacrev(lambda w: network.outputs(w, inputs))(weights)
    expected = (jacobian * along).sum((3, 4))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
def test_derivatives_within_each_other_are_those_of_the_hessian(bias):
    network, weights, inputs = layers(bias=bias)

    def of(w):
        return total(network, w, inputs)

    several = torch.stack([started(MODELS, weights.shape[1]).roll(n) for n in range(3)])
    matrix = hessian(of)(weights)
    expected = torch.einsum("mdne,kne->kmd", matrix, several)
    forward_of_back = vmap(lambda v: jvp(grad(of), (weights,), (v,))[1])(several)
    torch.testing.assert_close(forward_of_back, expected, rtol=1e-12, atol=1e-12)

    def slope(w, v):
        return jvp(of, (w,), (v,))[1]

    back_of_forward = vmap(lambda v: grad(slope)(weights, v))(several)
    torch.testing.assert_close(back_of_forward, expected, rtol=1e-12, atol=1e-12)
    twice = jvp(lambda w: slope(w, several[0]), (weights,), (several[1],))[1]
    curved = (several[1] * expected[0]).sum()
    torch.testing.assert_close(twice, curved, rtol=1e-12, atol=1e-12)


def test_rows_that_move_with_the_weights_have_their_part():
    network, weights, inputs = layers(bias=True)

    def of(w):
        return network.outputs(w, inputs * w[:, :1, None])

    along = started(MODELS, weights.shape[1])
    found = jvp(of, (weights,), (along,))[1]
    expected = (torch.func.jacrev(of)(weights) * along).sum((3, 4))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_inputs_cost_no_products_with_zeros():
    network, weights, inputs = layers(bias=True)
    counter = FlopCounterMode(display=False)
    with counter:
        jvp(lambda w: network.outputs(w, inputs), (weights,), (weights,))
    first, second = 2 * MODELS * ROWS * 6 * 4, 2 * MODELS * ROWS * 4 * 3
    assert counter.get_total_flops() == 2 * first + 3 * second
