"""Both parts of the Hessian of chains: torch's, and lemma 3.15 of Botev (2020)."""

from functools import partial
from itertools import combinations_with_replacement, pairwise

import pytest
import torch
from torch import nn
from torch.func import hessian, jacrev
from torch.nn import functional as F

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedHessian
from curvflow.tasks.numerics.kronecker import hessian_parts
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.hessian_parts import HessianPart
from tests.tasks.numerics.kronecker.test_chains import MODELS, NETS, of, posed
from tests.tasks.numerics.kronecker.test_factors import within_blocks, written_out

EXACT = {"rtol": 1e-9, "atol": 1e-11}
ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda h: h,
    "softplus": F.softplus,
}
LOSSES = {
    "cross_entropy": F.cross_entropy,
    "sse": lambda f, y: (f - y).square().sum(),
}


def parts_of(networks):
    return [
        written_out(HessianPart(networks, n)) for n in ("second_order", "first_order")
    ]


@pytest.mark.parametrize("name", NETS)
def test_both_parts_add_up_to_the_hessian(name):
    second, first = parts_of(of(name))
    problem, samples, weights = posed(name)
    whole = written_out(
        BatchedHessian(problem.losses, weights, samples.inputs, samples.targets)
    )
    torch.testing.assert_close(second + first, whole, **EXACT)
    assert first.abs().max() > 0.01
    blocks = factors(of(name), Choices("block", recursion="hessian")).operator
    assert not within_blocks(blocks, first).any()
    torch.testing.assert_close(
        within_blocks(blocks, second), written_out(blocks), **EXACT
    )


def test_a_vector_columns_and_a_selected_model_have_the_same_products(monkeypatch):
    operator = HessianPart(of("tanh"), "first_order")
    columns = torch.randn(*operator.shape[:2], 3).double()
    products = operator @ columns
    monkeypatch.setattr(hessian_parts, "PASS_NUMBERS", 100)  # columns one by one
    torch.testing.assert_close(operator @ columns, products)
    torch.testing.assert_close(operator @ columns[:, :, 1], products[:, :, 1])
    for model in range(MODELS):
        only = operator.select(torch.tensor([model]))
        torch.testing.assert_close(only @ columns[[model]], products[[model]])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_blocks_are_those_of_lemma_3_15(activation, loss):
    torch.manual_seed(2)
    phi, sizes = ACTIVATIONS[activation], (3, 4, 2, 3)
    weights = [torch.randn(o, i).double() for i, o in pairwise(sizes)]
    x, label, values = torch.randn(3).double(), torch.tensor(1), torch.randn(3).double()
    target = label if loss == "cross_entropy" else values

    def onwards(h, start, end):
        """Return h of a later layer; layers are counted from 0."""
        for weight in weights[start + 1 : end + 1]:
            h = weight @ phi(h)
        return h

    def of_h(start):
        return lambda h: LOSSES[loss](onwards(h, start, 2), target)

    h = [onwards(weights[0] @ x, 0, layer) for layer in range(3)]
    below = [x, phi(h[0]), phi(h[1])]
    second, first = lemma(h, below, of_h, onwards, phi)
    net = Chain(weights, phi)
    given = net, loss, (x[None], target[None])
    K = curvflow.kronecker(*given, curvature="hessian", structure="block")
    eye = torch.eye(len(second)).double()
    torch.testing.assert_close(K.second_order @ eye, second, **EXACT)
    torch.testing.assert_close(K.first_order @ eye, first, **EXACT)


def lemma(h, below, of_h, onwards, phi):
    """Return both parts of one sample, block by block."""
    second = [[None] * 3 for _ in range(3)]
    first = [[None] * 3 for _ in range(3)]
    for k, j in combinations_with_replacement(reversed(range(3)), 2):
        gradient, by_h = jacrev(of_h(k))(h[k]), hessian(of_h(k))(h[k])
        by_h = by_h @ jacrev(partial(onwards, start=j, end=k))(h[j])
        moved = torch.zeros(len(below[k]), len(h[j])).double()
        if k > j:
            before = jacrev(partial(onwards, start=j, end=k - 1))(h[j])
            moved = jacrev(phi)(h[k - 1]) @ before
        outer = torch.einsum("op,i,q->oipq", by_h, below[k], below[j])
        mixed = torch.einsum("o,ip,q->oipq", gradient, moved, below[j])
        for blocks, block in ((second, outer), (first, mixed)):
            matrix = block.flatten(2).flatten(0, 1)
            blocks[k][j], blocks[j][k] = matrix, matrix.mT
    return [torch.cat([torch.cat(row, 1) for row in rows]) for rows in (second, first)]


class Chain(nn.Module):
    def __init__(self, weights, phi):
        super().__init__()
        self.phi, self.layers = phi, nn.ModuleList()
        for weight in weights:
            self.layers.append(nn.Linear(*weight.shape[::-1], bias=False).double())
            self.layers[-1].weight.data = weight

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(self.phi(x) if number else x)
        return x


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed):
    given = random_chain(torch.Generator().manual_seed(seed))
    size = sum(p.numel() for p in given[0].parameters())
    eye = torch.eye(size).double()
    H = curvflow.hessian(*given) @ eye
    for apart in (False, True):
        K = curvflow.kronecker(
            *given,
            curvature="hessian",
            structure="block",
            separate_weight_and_bias=apart,
        )
        second, first = K.second_order @ eye, K.first_order @ eye
        torch.testing.assert_close(second + first, H, **EXACT)
        torch.testing.assert_close(K.off_diagonal @ eye, H - K @ eye, **EXACT)
        assert not first[(K @ eye) != 0].any()


def random_chain(g):
    def below(n):
        return int(torch.randint(n, (), generator=g))

    sizes = [1 + below(4) for _ in range(2 + below(3))] + [3]
    layers = []
    for number, (before, after) in enumerate(pairwise(sizes)):
        layers += [(nn.Tanh, nn.ReLU, nn.SiLU)[below(3)]()] if number else []
        layers.append(nn.Linear(before, after, bias=below(2) == 1))
    net, count = nn.Sequential(*layers).double(), 1 + below(6)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=g).double()
    inputs = torch.randn(count, sizes[0], generator=g).double()
    values = torch.rand(count, 3, generator=g).double()
    loss = ("cross_entropy", "mse", "sse", "bce")[below(4)]
    labels = torch.randint(3, (count,), generator=g)
    return net, loss, (inputs, labels if loss == "cross_entropy" else values)


def test_a_loss_with_negative_curvature_has_the_first_part_alone():
    def loss(f, y):
        return (f.square().sum(-1) - 1).square().mean()

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    given = net, loss, (torch.randn(5, 3).double(), torch.zeros(5))
    settings = {"curvature": "hessian", "structure": "block", "psd": "clip"}
    K, eye = curvflow.kronecker(*given, **settings), torch.eye(31).double()
    left = (curvflow.hessian(*given) - K.first_order) @ eye
    # What is left is a sum over samples of products of a and a, and so by a bias, whose
    # a is 1, the mean of the Hessian by the last outputs.
    h = net(given[2][0]).detach()
    by_outputs = [hessian(lambda z: loss(z, None))(one) for one in h]
    torch.testing.assert_close(left[-3:, -3:], torch.stack(by_outputs).mean(0), **EXACT)
    for name in ("second_order", "off_diagonal"):
        with pytest.raises(InputError, match="psd: expected refuse for the Hessian"):
            getattr(K, name)


def test_parts_of_other_factors_are_refused():
    net, inputs = nn.Linear(2, 1).double(), torch.randn(3, 2).double()
    given = net, "sse", (inputs, inputs[:, :1])
    with pytest.raises(InputError, match="curvature: expected hessian for first_order"):
        _ = curvflow.kronecker(*given).first_order
    products = curvflow.kronecker(*given, curvature="hessian")
    with pytest.raises(InputError, match="structure: expected block for off_diagonal"):
        _ = products.off_diagonal
    assert (products.second_order @ torch.ones(3).double()).shape == (3,)
