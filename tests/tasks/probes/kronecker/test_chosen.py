"""Factors of some tensors of a module are those that all of them have there."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.curvature.stored_factors import block_operator
from tests.tasks.probes.kronecker.nets import as_factors
from tests.tasks.toys import (
    blobs,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)


class Attending(nn.Module):
    """A table of tokens, PyTorch's attention, and a head."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, tokens):
        x = self.table(tokens)
        return self.head(x + self.attention(x, x, x, need_weights=False)[0]).mean(1)


class Twice(nn.Module):
    """A layer used twice, and one bias that two layers add."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.bias = self.first.bias
        self.third, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.second(self.first(x).tanh()).tanh()
        return self.head(self.third(self.third(x).tanh()).tanh())


def make_convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (2, 4)),
        nn.Conv1d(2, 4, 2, groups=2),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 2),
    )


def make_chain():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))


# Of each module the tensors left out in turn, and inputs.
NETS = {
    "convolutions": (make_convolutions, lambda: torch.randn(7, 8).double()),
    "attention": (Attending, lambda: torch.randint(5, (7, 3))),
    "twice": (Twice, lambda: torch.randn(7, 4).double()),
}


def few_of(names, seed):
    """Return the biases alone, each by itself, and some other choices."""
    biases = [name for name in names if name.endswith("bias")]
    yield biases
    yield from ([name] for name in biases)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        kept = rng.permutation(names)[: rng.integers(1, len(names))]
        yield [name for name in names if name in kept]


@pytest.mark.parametrize("structure", ["kron", "ekfac", "kfoc"])
@pytest.mark.parametrize("how", ["expand", "reduce"])
@pytest.mark.parametrize("name", NETS)
def test_tensors_chosen_have_the_blocks_that_they_have_among_all(name, how, structure):
    if structure == "kfoc" and how == "reduce":
        pytest.skip("of the block itself")
    make, drawn = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, inputs = make().double(), drawn()
    given = net, "cross_entropy", (inputs, torch.arange(7) % 2)
    settings = {
        "structure": structure, "kfac_approx": how, "separate_weight_and_bias": True
    }  # fmt: skip
    whole = curvflow.kronecker(*given, **settings)
    dense = whole @ torch.eye(whole.operator.shape[0]).double()
    ends = dict(
        zip(whole.sizes, itertools.accumulate(whole.sizes.values()), strict=True)
    )
    for names in few_of(list(whole.sizes), seed=0):
        K = curvflow.kronecker(*given, layers=names, **settings)
        rows = torch.cat(
            [torch.arange(ends[n] - whole.sizes[n], ends[n]) for n in names]
        )
        found = K @ torch.eye(len(rows)).double()
        torch.testing.assert_close(found, dense[rows[:, None], rows])


@pytest.mark.parametrize("patterns", [["*.bias"], ["*.weight"], ["2.bias", "0.*"]])
@pytest.mark.parametrize(
    "how", [{}, {"fisher_type": "recursive"}, {"curvature": "hessian"}]
)
def test_tensors_chosen_have_the_same_blocks_in_a_study(how, patterns):
    data = blobs()
    model = {"factory": "tests.tasks.probes.kronecker.test_chosen:make_chain"}
    (outcome,) = train_all([train_member(data, model=model)])
    one = member(
        "probe.factors",
        {"layers": patterns, **how},
        weights=weights_of(outcome),
        data=data,
    )
    (factors,) = compute("probe.factors", [one])
    node = as_factors(factors)
    net = make_chain().double()
    weights = torch.from_numpy(outcome.arrays["weights"][-1])
    nn.utils.vector_to_parameters(weights, net.parameters())
    batch = torch.from_numpy(data["inputs"]), torch.from_numpy(data["targets"]).long()
    K = curvflow.kronecker(net, "cross_entropy", batch, layers=patterns, **how)
    assert [block.name for block in K.blocks.blocks] == node["block"].tolist()
    eye = torch.eye(K.operator.shape[0]).double()
    torch.testing.assert_close(block_operator([node]) @ eye[None], (K @ eye)[None])


def make_deep():
    return nn.Sequential(
        nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)
    )


@pytest.mark.parametrize("layers", [["0.*"], ["2.*"], ["0.*", "4.*"], ["*.bias"]])
@pytest.mark.parametrize(
    "how",
    [
        {"fisher_type": "recursive"},
        {"curvature": "hessian"},
        {"curvature": "hessian", "structure": "block"},
    ],
)
def test_recursions_go_through_the_layers_that_are_left_out(how, layers):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, inputs = make_deep().double(), torch.randn(10, 3).double()
    given = net, "mse", (inputs, inputs[:, :2])
    settings = {"separate_weight_and_bias": layers == ["*.bias"], **how}
    whole = curvflow.kronecker(*given, **settings)
    dense = whole @ torch.eye(whole.operator.shape[0]).double()
    K = curvflow.kronecker(*given, layers=layers, **settings)
    ends = dict(
        zip(whole.sizes, itertools.accumulate(whole.sizes.values()), strict=True)
    )
    rows = torch.cat([torch.arange(ends[n] - whole.sizes[n], ends[n]) for n in K.sizes])
    eye = torch.eye(len(rows)).double()
    torch.testing.assert_close(K @ eye, dense[rows[:, None], rows])
    if "curvature" not in how:
        return
    H = curvflow.hessian(*given, params=layers) @ eye
    torch.testing.assert_close(K.first_order @ eye + K.second_order @ eye, H)
    if "structure" in how:
        torch.testing.assert_close(K.off_diagonal @ eye + K @ eye, H)


def test_what_is_left_out_may_have_no_entries():
    net = make_deep().double()
    net.register_parameter("none", nn.Parameter(torch.empty(0).double()))
    given = net, "mse", (torch.randn(4, 3).double(), torch.randn(4, 2).double())
    for how in ({}, {"fisher_type": "recursive"}):
        assert curvflow.kronecker(*given, layers=["0.*"], **how).sizes
        with pytest.raises(InputError, match="'none'"):
            curvflow.kronecker(*given, **how)
