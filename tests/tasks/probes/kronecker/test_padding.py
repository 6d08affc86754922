"""Curvature of modules of tokens some of which are padding, whose row never moves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import curvflow

CALLS = {
    "by place": lambda ids, table: F.embedding(ids, table, 1),
    "by name": lambda ids, table: F.embedding(input=ids, weight=table, padding_idx=1),
    "from the end": lambda ids, table: F.embedding(ids, table, padding_idx=-4),
    "beneath": lambda ids, table: torch.embedding(table, ids, 1),
    "beneath by name": lambda ids, table: torch.embedding(
        weight=table, indices=ids, padding_idx=1
    ),
}
# Of layers that are known.
KNOWN = [how for how in CALLS if not how.startswith("beneath")]


class Tokens(nn.Module):
    """Rows of a table, by a layer or by the function, and a readout of their sum."""

    def __init__(self, how, activation=nn.Identity):
        super().__init__()
        self.how = how
        self.table = nn.Embedding(5, 3, padding_idx=1 if how == "layer" else None)
        self.activation, self.head = activation(), nn.Linear(3, 2)
        nn.init.normal_(self.table.weight)

    def forward(self, ids):
        if self.how == "layer":
            rows = self.table(ids)
        else:
            rows = CALLS[self.how](ids, self.table.weight)
        return self.head(self.activation(rows).sum(1))


def made(how, seed, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Tokens(how, **options).double()
        tokens = torch.randint(5, (8, 4))
    return net, "sse", (tokens, torch.zeros(8, 2).double())


def dense(net, tokens):
    """Return the mean of 2 J'J by gradients of one output at a time."""
    weights = list(net.parameters())
    slopes = [
        torch.autograd.grad(output, weights, retain_graph=True)
        for output in net(tokens).flatten()
    ]
    J = torch.stack([torch.cat([part.flatten() for part in row]) for row in slopes])
    return 2 * J.T @ J / len(tokens)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("how", ["layer", *CALLS])
def test_products_take_the_row_of_padding_for_a_constant(how, seed):
    net, loss, data = made(how, seed, activation=nn.Tanh)
    given, eye = (net, loss, data), torch.eye(23).double()
    expected = dense(net, data[0])
    torch.testing.assert_close(curvflow.ggn(*given) @ eye, expected)
    H = torch.func.hessian(
        lambda w: (
            torch.func.functional_call(net, split(net, w), (data[0],)).square().sum()
            / len(data[0])
        )
    )(nn.utils.parameters_to_vector(net.parameters()).detach())
    kept = torch.ones(23).double()
    kept[3:6] = 0  # forward derivatives of torch count the row
    torch.testing.assert_close(
        curvflow.hessian(*given) @ eye, kept[:, None] * H * kept, atol=1e-10, rtol=1e-7
    )


def split(net, weights):
    parts = torch.split(weights, [p.numel() for p in net.parameters()])
    named = zip(net.named_parameters(), parts, strict=True)
    return {name: part.reshape(p.shape) for (name, p), part in named}


@pytest.mark.parametrize("approx", ["expand", "reduce"])
@pytest.mark.parametrize("how", KNOWN)
def test_factors_of_a_table_by_the_function_are_those_of_the_layer(how, approx):
    several = []
    for each in ("layer", how):
        given = made(each, 0, activation=nn.Tanh)
        K = curvflow.kronecker(*given, kfac_approx=approx)
        several.append(K @ torch.eye(23).double())
    torch.testing.assert_close(several[1], several[0])


@pytest.mark.parametrize("how", ["layer", "by name"])
def test_padding_counts_among_the_positions_of_a_product_and_nowhere_else(how):
    net, loss, (tokens, targets) = made(how, 0)
    tokens = torch.where(tokens == 1, 0, tokens)
    tokens[:, 1:] = 1  # one token of each sample is none
    given, eye = (net, loss, (tokens, targets)), torch.eye(15).double()
    exact = dense(net, tokens)[:15, :15]
    settings = {"layers": ["table.weight"]}
    # Of one token with a linear readout the block is a product.
    product = curvflow.kronecker(*given, **settings) @ eye
    torch.testing.assert_close(4 * product, exact)
    for structure in ("ekfac", "kfoc", "block"):
        K = curvflow.kronecker(*given, **settings, structure=structure)
        torch.testing.assert_close(K @ eye, exact)
