"""Uses of parameters in modules of torch, and what cannot be told of them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.tasks.numerics import stream
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.forms import Product as FactorsOfTwo
from curvflow.tasks.numerics.kronecker.layers import Places
from curvflow.tasks.numerics.kronecker.recorded import accounted
from tests.tasks.models.examples import EXAMPLES
from tests.tasks.models.test_all import inputs_of, weights_of
from tests.tasks.numerics.kronecker.cases import dense, module_network, recorded
from tests.tasks.numerics.kronecker.test_factors import within_blocks, written_out


class Twice(nn.Module):
    """A layer used twice, the second time behind another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class Halves(nn.Module):
    """Two layers of one weight, with biases of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Attention(nn.Module):
    """Attention of torch's own."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.batch_first = batch_first

    def forward(self, x):
        x = x.unflatten(1, (3, 4))
        if not self.batch_first:
            x = x.transpose(0, 1)
        found = self.attend(x, x, x, need_weights=False)[0]
        return found.mean(1 if self.batch_first else 0)


class TokensFirst(nn.Module):
    """A layer of rows that stand token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        rows = x.unflatten(1, (3, 2)).transpose(0, 1).flatten(0, 1)
        return self.layer(rows).tanh().unflatten(0, (3, -1)).sum(0)


class MixedUp(nn.Module):
    """A layer of rows that stand neither sample by sample nor token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        rows = x.unflatten(1, (2, 2, 2)).transpose(0, 1).flatten(0, 2)
        return self.layer(rows).tanh().unflatten(0, (2, -1, 2)).sum((0, 2))


class Product(nn.Module):
    """A weight that is multiplied by hand, beside a layer that also takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.layer(x)) @ self.layer.weight


class Faint(Product):
    """The same, with derivatives as small as rounding is of others."""

    def forward(self, x):
        return 1e-10 * super().forward(x)


class ScaledTwice(nn.Module):
    """A norm whose scale is multiplied by hand, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)

    def forward(self, x):
        return torch.tanh(self.norm(x)) * self.norm.weight


class Turned(nn.Module):
    """Channels behind a norm as tokens, which come back in other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)
        self.tokens, self.last = nn.LayerNorm(3), nn.Linear(18, 1)

    def forward(self, x):
        found = self.norm(self.first(x.unflatten(1, (2, 2, 3))))
        return self.last(self.tokens(found.flatten(2).transpose(1, 2)).flatten(1))


class Tokens(nn.Module):
    """Rows of a table with a padding, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(5, 3, padding_idx=1), nn.Linear(3, 2)

    def forward(self, tokens):
        return self.last(torch.tanh(self.table(tokens)).sum(1))


def images(*layers):
    return nn.Sequential(nn.Unflatten(1, (4, 5)), *layers)


MODULES = {
    "twice": (Twice, (3,), set()),
    "halves": (Halves, (3,), set()),
    "attention": (lambda: Attention(True), (12,), set()),
    "attention-tokens-first": (lambda: Attention(False), (12,), set()),
    "groups": (
        lambda: images(nn.Conv1d(4, 6, 2, groups=2, dilation=2), nn.Flatten()),
        (20,),
        set(),
    ),
    "stride": (
        lambda: images(
            nn.Conv1d(4, 4, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten()
        ),
        (20,),
        set(),
    ),
    "same": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 2, (1, 3), padding="same"),
            nn.Tanh(), nn.Flatten(), nn.Linear(40, 2),
        ),
        (20,),
        set(),
    ),
    "circular": (
        lambda: images(
            nn.Conv1d(4, 2, 3, padding=1, padding_mode="circular"), nn.Flatten()
        ),
        (20,),
        set(),
    ),
    "volumes": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 2, 3, 2)), nn.Conv3d(1, 2, 2), nn.Flatten()
        ),
        (12,),
        set(),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.RMSNorm(4), nn.Linear(4, 2),
            nn.BatchNorm1d(2),
        ),
        (3,),
        set(),
    ),
    "encoder": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 4)),
            nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
            nn.Flatten(), nn.Linear(12, 2),
        ),
        (12,),
        set(),
    ),
    "turned": (Turned, (12,), set()),
    "tokens-first": (TokensFirst, (6,), set()),
    "mixed-up": (MixedUp, (8,), {"layer.weight", "layer.bias"}),
    "product": (Product, (3,), {"layer.weight", "layer.bias"}),
    "faint": (Faint, (3,), {"layer.weight", "layer.bias"}),
    "scaled-twice": (ScaledTwice, (3,), {"norm.weight", "norm.bias"}),
    "padding": (Tokens, (4,), set()),
}  # fmt: skip


def made(name):
    make, shape, rest = MODULES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().double().eval()
    network = module_network(module)
    parameters = torch.cat([p.detach().flatten() for p in module.parameters()])
    noise = torch.randn(
        2, len(parameters), generator=stream(0, "n"), dtype=torch.float64
    )
    statistics = network.first_statistics().expand(2, -1)
    weights = torch.cat([parameters + 0.3 * noise, statistics], dim=1)
    if name == "padding":
        inputs = torch.randint(5, (2, 5, *shape), generator=stream(0, "x"))
    else:
        inputs = torch.randn(
            2, 5, *shape, generator=stream(0, "x"), dtype=torch.float64
        )
    return network, weights, inputs, rest


@pytest.mark.parametrize("name", MODULES)
def test_blocks_of_a_module_are_those_of_the_matrix_written_out(name):
    network, weights, inputs, rest = made(name)
    found = factors(recorded(network, weights, inputs), Choices("block"))
    whole = dense(network, weights, inputs)
    expected = within_blocks(found.operator, whole)
    torch.testing.assert_close(
        written_out(found.operator), expected, rtol=1e-9, atol=1e-10
    )
    left = {n for b in found.operator.blocks[-1:] for n in b.name.split(" and ")}
    assert not rest or left == rest
    named = {n for b in found.operator.blocks for n in b.name.split(" and ")}
    assert named == set(network.layout.names)


@pytest.mark.parametrize("name", MODULES)
def test_layers_of_a_module_have_factors_and_norms_their_blocks(name):
    network, weights, inputs, rest = made(name)
    blocks = factors(recorded(network, weights, inputs), Choices()).operator.blocks
    apart = {n for b in blocks if not isinstance(b, FactorsOfTwo) for n in parts(b)}
    shapes = dict(zip(network.layout.names, network.layout.shapes, strict=True))
    matrices = {n for n, shape in shapes.items() if len(shape) > 1}
    assert apart & matrices == {n for n in rest if n in matrices}


def parts(block):
    return block.name.split(" and ")


@pytest.mark.parametrize("name", MODULES)
def test_blocks_of_one_sample_are_those_of_the_matrix_written_out(name):
    network, weights, inputs, _ = made(name)
    inputs = inputs[:, :1]
    found = factors(recorded(network, weights, inputs), Choices("block")).operator
    expected = within_blocks(found, dense(network, weights, inputs))
    torch.testing.assert_close(written_out(found), expected, rtol=1e-9, atol=1e-10)


def rearranged(matrix, rows):
    """Return a block with a row for each pair of rows of the weight."""
    columns = len(matrix) // rows
    apart = matrix.reshape(rows, columns, rows, columns).transpose(1, 2)
    return apart.reshape(rows**2, columns**2)


@pytest.mark.parametrize("name", [n for n in MODULES if not MODULES[n][2]])
def test_closest_products_are_the_leading_pairs_of_rearranged_blocks(name):
    network, weights, inputs, _ = made(name)
    of = recorded(network, weights, inputs)
    found, whole = factors(of, Choices("kfoc")), dense(network, weights, inputs)
    for block in found.operator.blocks:
        if not isinstance(block, FactorsOfTwo):
            continue
        _, groups, rows, _ = block.left_factor.shape
        for columns in block.columns.chunk(groups):
            among = columns[:, None], columns
            for K, G in zip(written_out(found.operator), whole, strict=True):
                left, sizes, right = torch.linalg.svd(rearranged(G[among], rows))
                best = sizes[0] * torch.outer(left[:, 0], right[0])
                gap = (rearranged(K[among], rows) - best).norm()
                assert gap <= 1e-4 * best.norm() + 1e-12


def test_what_is_no_layer_is_refused_by_name():
    network, weights, inputs, _ = made("product")
    with pytest.raises(InputError, match=r"^other: expected every .*'layer.weight'"):
        factors(recorded(network, weights, inputs), Choices(other="refuse"))


def test_weights_of_endless_derivatives_are_refused():
    network, weights, inputs, _ = made("twice")
    with pytest.raises(InputError, match=r"^weights: expected finite derivatives"):
        factors(recorded(network, 1e200 * weights, 1e200 * inputs), Choices())


def test_the_diagonal_of_what_is_no_layer():
    network, weights, inputs, _ = made("norms")
    found = factors(
        recorded(network, weights, inputs), Choices("diag", other="diag")
    ).operator
    whole = dense(network, weights, inputs).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(
        written_out(found), torch.diag_embed(whole), rtol=1e-9, atol=1e-12
    )


NOTED = [name for name, example in EXAMPLES.items() if example.network().notes_all]


@pytest.mark.parametrize("name", NOTED)
def test_models_that_note_all_uses_do(name):
    network, weights = weights_of(EXAMPLES[name])
    of = recorded(network, weights, inputs_of(EXAMPLES[name], 3))
    places = Places.of(of.names, of.shapes, set(of.names))
    tried, _ = accounted(of, places)
    known, _ = accounted(replace(of, notes_all=True), places, of.begun())
    assert known == tried


def test_derivatives_that_are_not_finite_are_refused_without_trying():
    example = EXAMPLES["mlp"]
    network, weights = weights_of(example)
    of = recorded(network, weights, inputs_of(example, 3))
    broken = replace(of, weights=of.weights * torch.inf, notes_all=True)
    with pytest.raises(InputError, match=r"^weights: expected finite derivatives"):
        factors(broken, Choices())
