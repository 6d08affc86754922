"""Recursions through any layers, against exact factors and derivatives written out."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.tasks.numerics import stream
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.forms import Product
from curvflow.tasks.numerics.kronecker.layers import Places, pieces
from curvflow.tasks.numerics.kronecker.recorded import accounted
from curvflow.tasks.numerics.kronecker.recursions import branched_factors
from tests.tasks.numerics.kronecker.cases import SMALL, case, module_network, recorded
from tests.tasks.numerics.kronecker.test_chains import constant, of

# With tables of tokens, or a layer used twice.
REFUSED = (
    "transformer", "transformer-tied", "lstm", "lstm-tokens", "gru", "gru-without-bias"
)  # fmt: skip
RECURSIVE = Choices(recursion="recursive")


class Beside(nn.Module):
    """A layer, what goes around it, and a norm as it stands."""

    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels, affine=False)

    def forward(self, x):
        return x + self.norm(self.layer(x))


def convolutions(act, end=()):
    return nn.Sequential(
        *(nn.Conv2d(1, 2, 2), act(), nn.AvgPool2d(2), nn.Conv2d(2, 2, 2, padding=1)),
        *(act(), *end, nn.Flatten(), nn.Linear(18, 3)),
    )


def posed(module, shape, models=2, samples=5):
    torch.manual_seed(0)
    network = module_network(module.double().eval())
    size = network.num_parameters + network.statistics.size
    weights = network.first_statistics().new_zeros(models, size)
    weights[:, network.num_parameters :] = network.first_statistics()
    generator = stream(1, "weights")
    drawn = torch.randn(models, network.num_parameters, generator=generator)
    weights[:, : network.num_parameters] = 0.4 * drawn
    inputs = torch.randn(1, samples, *shape, generator=stream(2, "x")).double()
    return recorded(network, weights, inputs)


def assert_same_left(one, other):
    for a, b in zip(one.blocks, other.blocks, strict=True):
        assert a.name == b.name
        for name in ("left_factor", "right_factor"):
            torch.testing.assert_close(
                getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("how", ["expand", "reduce"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    "module",
    [
        convolutions(nn.Identity),
        convolutions(nn.Identity, [Beside(2)]),
        nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1, 1), nn.Conv2d(4, 4, 2, 1, 0, 2, 2),
                      nn.Flatten(), nn.Linear(4, 3)),
    ],
    ids=["pooling", "branches", "grouped"],
)  # fmt: skip
def test_factors_of_linear_networks_are_exact(module, how, separate):
    problem = constant(posed(module, (1, 5, 5)))
    asked = {"kfac_approx": how, "separate_weight_and_bias": separate}
    found = factors(problem, replace(RECURSIVE, **asked))
    assert_same_left(found.operator, factors(problem, Choices(**asked)).operator)
    assert found.num_backward > 0


@pytest.mark.parametrize("how", ["expand", "reduce"])
@pytest.mark.parametrize("name", [name for name in SMALL if name not in REFUSED])
def test_factors_of_a_single_sample_are_exact(name, how):
    whole = case(name)
    problem = replace(whole, inputs=whole.inputs[:, :1], targets=whole.targets[:, :1])
    found = factors(problem, replace(RECURSIVE, kfac_approx=how, other="diag"))
    expected = factors(problem, Choices(kfac_approx=how, other="diag"))
    products = [b for b in found.operator.blocks if isinstance(b, Product)]
    assert products or name == "normal_crossing"
    for block in products:
        (other,) = (b for b in expected.operator.blocks if b.name == block.name)
        torch.testing.assert_close(block.left_factor, other.left_factor)
        torch.testing.assert_close(block.right_factor, other.right_factor)


@pytest.mark.parametrize("name", REFUSED)
def test_other_layers_are_refused_by_name(name):
    with pytest.raises(InputError, match=r"^fisher_type: expected .* once.* got '\w+"):
        factors(case(name), RECURSIVE)


def test_a_chain_of_dense_layers_is_as_by_its_own_recursion():
    problem = of("tanh")
    chain = factors(problem, RECURSIVE).operator
    places = Places.of(problem.names, problem.shapes, set(problem.names))
    read, _ = accounted(problem, places)
    several = [
        p for layer in read.layers for p in pieces(layer, places, separate=False)
    ]
    found, _ = branched_factors(problem, several, "expand")
    for block, (left, right) in zip(chain.blocks, found, strict=True):
        torch.testing.assert_close(left, block.left_factor, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(right, block.right_factor, rtol=1e-10, atol=1e-12)


def test_a_convolution_of_one_place_is_a_dense_layer():
    act = nn.Tanh
    dense = nn.Sequential(
        nn.Linear(3, 4), act(), nn.Linear(4, 3), act(), nn.Linear(3, 2)
    )
    convolved = nn.Sequential(
        nn.Conv2d(3, 4, 1), act(), nn.Conv2d(4, 3, 1), act(), nn.Conv2d(3, 2, 1),
        nn.Flatten(),
    )  # fmt: skip
    one, other = posed(dense, (3,)), posed(convolved, (3, 1, 1))
    found = [factors(problem, RECURSIVE).operator for problem in (one, other)]
    for a, b in zip(*(operator.blocks for operator in found), strict=True):
        torch.testing.assert_close(a.left_factor, b.left_factor, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(a.right_factor, b.right_factor)


def test_means_are_taken_at_layers_that_everything_passes_through():
    first, branch, last = nn.Conv2d(1, 2, 2), Beside(2), nn.Linear(18, 3)
    between = nn.Sequential(nn.Tanh(), nn.AvgPool2d(2, 1), branch, nn.Tanh())
    module = nn.Sequential(first, between, nn.Flatten(), last).double().eval()
    problem = posed(module, (1, 5, 5), models=1, samples=4)
    with torch.no_grad():
        nn.utils.vector_to_parameters(problem.weights[0], module.parameters())
    found = factors(problem, RECURSIVE).operator

    outputs, _, _ = problem.forward(next(replace(problem, batch_size=4).parts()))
    part = next(replace(problem, batch_size=4).parts())
    roots = problem.roots(part, outputs.detach())[0]
    G_last = torch.einsum("nrc,nrd->cd", roots, roots) / 4

    def behind_first(h):
        return last(between(h[None]).flatten(1))[0]

    def behind_branch(c, beside):
        return last(torch.tanh(beside + branch.norm(c[None])).flatten(1))[0]

    found_first, found_branch = 0, 0
    for x in problem.inputs[0]:
        h = first(x[None])[0].detach()
        beside = between[:2](h[None]).detach()
        c = branch.layer(beside)[0].detach()
        J = torch.autograd.functional.jacobian(behind_first, h).reshape(3, -1)
        found_first += J.T @ G_last @ J / 4
        J = torch.autograd.functional.jacobian(
            lambda c, beside=beside: behind_branch(c, beside), c
        ).reshape(3, -1)
        found_branch += J.T @ G_last @ J / 4
    several = (found_first, 2), (found_branch, 2), (G_last, 3)
    for block, (whole, channels) in zip(found.blocks, several, strict=True):
        each = whole.reshape(channels, -1, channels, len(whole) // channels)
        expected = torch.einsum("ctdt->cd", each)
        torch.testing.assert_close(block.left_factor[0, 0], expected)


def test_means_of_one_layer_go_on_to_the_layer_before():
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, 2), nn.Linear(8, 3)
    behind = nn.Sequential(nn.Tanh(), nn.AvgPool2d(2, 1)), nn.Tanh()
    module = nn.Sequential(
        layers[0], behind[0], layers[1], behind[1], nn.Flatten(), layers[2]
    )
    problem = posed(module, (1, 5, 5), models=1, samples=5)
    with torch.no_grad():
        nn.utils.vector_to_parameters(problem.weights[0], module.parameters())
    found = factors(problem, RECURSIVE).operator
    part = next(replace(problem, batch_size=5).parts())
    outputs = problem.forward(part)[0].detach()
    roots = problem.roots(part, outputs)[0]
    G = torch.einsum("nrc,nrd->cd", roots, roots) / 5
    several = [G]
    for number, shape in ((1, 8), (0, 32)):
        total = 0
        for x in problem.inputs[0]:
            h = layers[0](x[None])
            h = h if number == 0 else layers[1](behind[0](h))

            def after(h, number=number):
                a = behind[number](h)
                return layers[number + 1](a if number == 0 else a.flatten(1)).flatten()

            J = torch.autograd.functional.jacobian(after, h.detach()).reshape(
                len(G), -1
            )
            total += J.T @ G @ J / 5
        G = total
        assert len(G) == shape
        several.append(G)
    for block, whole, channels in zip(
        found.blocks, several[::-1], (2, 2, 3), strict=True
    ):
        each = whole.reshape(channels, -1, channels, len(whole) // channels)
        torch.testing.assert_close(
            block.left_factor[0, 0], torch.einsum("ctdt->cd", each)
        )
