"""Factors of modules whose samples do not all use the same tensors alike.

All are held against the Gauss-Newton matrix by derivatives of one sample at a time.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import curvflow
from curvflow.tasks.library import kronecker as library
from tests.tasks.toys import (
    as_data,
    blobs,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)

SAMPLES = 40


def dense(net, inputs):
    """Return the mean of 2 J'J of a squared loss, sample by sample."""
    weights = list(net.parameters())
    rows = []
    for sample in inputs:
        for output in net(sample[None])[0]:
            slopes = torch.autograd.grad(
                output, weights, retain_graph=True, allow_unused=True
            )
            parts = [
                torch.zeros_like(w) if s is None else s
                for s, w in zip(slopes, weights, strict=True)
            ]
            rows.append(torch.cat([part.flatten() for part in parts]))
    J = torch.stack(rows)
    return 2 * J.T @ J / len(inputs)


def in_blocks(matrix, K):
    kept = torch.zeros_like(matrix)
    for block in K.blocks.blocks:
        rows, columns = block.columns[:, None], block.columns
        kept[rows, columns] = matrix[rows, columns]
    return kept


def names_of(K):
    return {block.name for block in K.blocks.blocks}


def assert_exact(net, inputs, unlike=()):
    """Hold blocks against the matrix, in one pass and in several; return the last.

    Products of two factors have as well the exact block of what is used in other ways.
    """
    targets, expected = torch.zeros(len(inputs), 2).double(), dense(net, inputs)
    given, eye = (net, "sse", (inputs, targets)), torch.eye(len(expected)).double()
    starts = torch.tensor([p.numel() for p in net.parameters()]).cumsum(0).tolist()
    ends = dict(zip([name for name, _ in net.named_parameters()], starts, strict=True))
    for most in (1 << 24, 1 << 7):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "MOST_NUMBERS", most)
            K = curvflow.kronecker(*given, structure="block")
            product = curvflow.kronecker(*given) @ eye
            corrected = curvflow.kronecker(*given, structure="ekfac") @ eye
        found = K @ eye
        torch.testing.assert_close(found, in_blocks(expected, K), rtol=1e-9, atol=1e-12)
        assert sum(len(block.columns) for block in K.blocks.blocks) == len(expected)
        torch.testing.assert_close(corrected.trace(), expected.trace())
        for name in unlike:
            size = net.get_parameter(name).numel()
            rows = slice(ends[name] - size, ends[name])
            torch.testing.assert_close(product[rows, rows], expected[rows, rows])
    return K


class Routed(nn.Module):
    """Two layers on tokens, each of which goes through one of them by its sign."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        flat = x.flatten(0, 1)
        goes = flat[:, 0] > 0
        found = flat.new_zeros(len(flat), 3)
        found[goes] = self.first(flat[goes])
        found[~goes] = self.second(flat[~goes])
        return self.head(found.tanh().unflatten(0, x.shape[:2]).sum(1))


class Sorted(nn.Module):
    """A layer on samples in the order of their first number."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        order = x[:, 0, 0].argsort()
        found = self.first(x[order]).tanh().sum(1)
        return self.head(found)[order.argsort()]


class Packed(nn.Module):
    """A layer on tokens that are no padding."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        counts = x[..., 0] > -0.7
        found = x.new_zeros(*x.shape[:2], 3)
        found[counts] = self.first(x[counts]).tanh()
        return self.head(found.sum(1))


class Branched(nn.Module):
    """A layer that only batches with large numbers go through."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        found, is_large = self.first(x), x[..., :1] > 1.5
        if is_large.any():
            found = torch.where(is_large, self.second(x), found)
        return self.head(found.tanh().sum(1))


class Tied(nn.Module):
    """A layer and its transpose, whose rows between are often all zero."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 3), nn.Linear(4, 2)
        nn.init.constant_(self.first.bias, -0.7)

    def forward(self, x):
        found = self.first(x.flatten(1)).relu()
        return self.head(found @ self.first.weight)


class Product(torch.autograd.Function):
    """A product by hand, which calls no function of torch's that is seen."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, slope):
        x, weight = ctx.saved_tensors
        return slope @ weight.T, x.T @ slope


class TiedByHand(Tied):
    """The same, with a product that no function of torch's computes."""

    def forward(self, x):
        found = self.first(x.flatten(1)).relu()
        return self.head(Product.apply(found, self.first.weight))


UNLIKE = {
    "tied by hand": (TiedByHand, {"first.weight"}),
    "routed": (Routed, {"first.weight", "second.weight"}),
    "sorted": (Sorted, {"first.weight", "head.weight"}),
    "packed": (Packed, {"first.weight"}),
    "branched": (Branched, set()),
    "tied": (Tied, {"first.weight"}),
}


def posed(name, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = UNLIKE[name][0]().double()
    return net, torch.randn(SAMPLES, 2, 2, generator=generator).double()


def tried():
    """Return the numbers of the samples that records are tried by."""
    return torch.arange(16) * SAMPLES // 16


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", UNLIKE)
def test_what_samples_use_each_in_another_way_has_its_exact_block(name, seed):
    K = assert_exact(*posed(name, seed), UNLIKE[name][1])
    assert name == "sorted" or "head.weight and head.bias" in names_of(K)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", UNLIKE)
def test_so_has_what_a_few_samples_use_alike(name, seed):
    net, inputs = posed(name, seed)
    few = {
        "routed": torch.tensor([[1.0, 0.3], [-1.0, 0.5]]),
        "sorted": torch.arange(64.0).view(16, 2, 2) / 64,
        "packed": torch.tensor([[1.0, 0.3], [2.0, 0.5]]),
        "branched": torch.tensor([[1.0, 0.3], [-1.0, 0.5]]),
    }.get(name, torch.zeros(2, 2))
    inputs[tried()] = few.double().expand(16, 2, 2)
    assert_exact(net, inputs, UNLIKE[name][1])


def test_rows_of_other_samples_that_make_up_for_theirs_are_found():
    net, inputs = posed("routed", 0)
    inputs[:] = torch.tensor([[1.0, 0.3], [-1.0, 0.5]]).double()
    assert "first.weight and first.bias" in names_of(assert_exact(net, inputs))
    inputs[1], inputs[3] = inputs[1].abs(), -inputs[3].abs()
    K = assert_exact(net, inputs)
    assert "first.weight and first.bias" not in names_of(K)


class Harmless(nn.Module):
    """Weights that other calls are given, which nothing comes of."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        found = self.first(x.flatten(1)).type_as(self.head.weight)
        return self.head(found + 0 * self.first.weight.sum()) * found[:, :1].sign()


def test_what_comes_to_nothing_leaves_a_layer_one():
    torch.manual_seed(0)
    K = assert_exact(Harmless().double(), torch.randn(9, 2, 2).double())
    assert names_of(K) == {
        "first.weight and first.bias",
        "head.weight and head.bias",
    }


class TwoCuts(nn.Module):
    """A convolution of one group, and of two with the same weight."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(4, 2, 3)), nn.Linear(4, 2)

    def forward(self, x):
        images = torch.cat([x, x.sin()], 1).repeat(1, 1, 2)
        parts = (
            F.conv1d(images, self.weight, groups=2),
            F.conv1d(x.repeat(1, 1, 2), self.weight),
        )
        return self.head(sum(part.sum(2) for part in parts).tanh())


class Vector(nn.Module):
    """A dense layer of a vector, for one output."""

    def __init__(self):
        super().__init__()
        self.first, self.weight = nn.Linear(4, 3), nn.Parameter(torch.randn(3))

    def forward(self, x):
        found = F.linear(self.first(x.flatten(1)).tanh(), self.weight)
        return torch.stack([found, found.square()], 1)


class Nothing(nn.Module):
    """A layer that no token goes through at its first use."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        none, found = self.first(x[:, :0]), self.first(x)
        return self.head(none.sum(1) + found.tanh().sum(1))


class Never(nn.Module):
    """A layer that no token goes through at all."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 3), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(x.sum(1)) + self.first(x[:, :0]).sum(1)[:, :2]


class Mapped(nn.Module):
    """Two layers on one sample, mapped over all."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 3), nn.LayerNorm(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        def of_one(sample):
            return self.norm(self.first(sample.flatten())).tanh()

        return self.head(torch.vmap(of_one)(x))


@pytest.mark.parametrize("make", [TwoCuts, Vector, Nothing, Never, Mapped])
def test_rare_uses_have_exact_blocks(make):
    torch.manual_seed(0)
    assert_exact(make().double(), torch.randn(9, 2, 2).double())


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.table(x).tanh().sum(1))


def test_tokens_may_be_small_integers():
    torch.manual_seed(0)
    net, tokens = Tokens().double(), torch.randint(5, (9, 2))
    targets = torch.zeros(9, 2).double()
    wide, narrow = (
        curvflow.kronecker(net, "sse", (kind, targets)) @ torch.eye(23).double()
        for kind in (tokens, tokens.int())
    )
    torch.testing.assert_close(wide, narrow)


class Gated(nn.Module):
    """A layer that is first used with gradients switched off."""

    def __init__(self, routes, most):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.head, self.routes, self.most = nn.Linear(4, 3), routes, most

    def forward(self, x):
        with torch.no_grad():
            gate = self.first(x).sigmoid()
        found, goes = gate * self.first(x), x[:, 0] > self.most
        if self.routes and goes.any():
            found = found.index_put((goes.nonzero()[:, 0],), self.second(x[goes]))
        return self.head(found.tanh())


def make_gated(routes=False, most=0.0):
    return Gated(routes, most)


RULES = {
    "kfac": {"rule": "kfac"},
    "gauss_newton": {"rule": "gauss_newton", "preconditioner": "kron"},
}


def trained(rule, **kwargs):
    model = {"factory": f"{__name__}:make_gated", "kwargs": kwargs}
    given = train_member(blobs(), model=model, rule=RULES[rule], batch_size=10)
    return train_all([given])[0]


@pytest.mark.parametrize("kwargs", [{}, {"routes": True}])
@pytest.mark.parametrize("rule", RULES)
def test_rules_train_what_passes_without_gradients_and_what_is_routed(rule, kwargs):
    losses = trained(rule, **kwargs).arrays["train_loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("rule", RULES)
def test_uses_that_training_alone_finds_are_refused_by_name(rule):
    largest = blobs()["inputs"][:, 0].max()
    with pytest.raises(
        curvflow.errors.InputError, match=r"uses of second.bias, second"
    ):
        trained(rule, routes=True, most=float(largest) - 1e-6)


class Switched(nn.Module):
    """A layer whose weight is multiplied once more where inputs are large."""

    def __init__(self, how, most):
        super().__init__()
        self.first, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
        self.how, self.most = how, most

    def forward(self, x):
        found, goes = self.first(x), x[:, :1] > self.most
        if self.how == "gate" or (self.how == "branch" and goes.any()):
            found = found + goes * (x @ self.first.weight)
        elif self.how == "none":
            found = found + 0 * (x @ self.first.weight)
        return self.head(found.tanh())


def make_switched(how, most=4.0):
    return Switched(how, most)


def data_with(largest):
    """Return inputs of which one is larger than any that a rule tries."""
    inputs = blobs()["inputs"].clip(-2.0, 2.0)
    inputs[3, 0] = largest
    return as_data({**blobs().arrays, "inputs": inputs}, f"largest {largest}")


def switched(rule, how, largest, seeds=(0,), **params):
    model = {"factory": f"{__name__}:make_switched", "kwargs": {"how": how}}
    data = data_with(largest)
    return train_all(
        [
            train_member(
                data, model=model, rule=RULES[rule], batch_size=10, seed=seed, **params
            )
            for seed in seeds
        ]
    )


@pytest.mark.parametrize("how", ["gate", "branch"])
@pytest.mark.parametrize("rule", RULES)
def test_uses_that_come_to_nothing_of_drawn_inputs_are_seen_in_batches(rule, how):
    switched(rule, how, 2.0)
    with pytest.raises(curvflow.errors.InputError, match=r"uses of first.weight"):
        switched(rule, how, 5.0)


@pytest.mark.parametrize("rule", RULES)
def test_uses_that_come_to_nothing_of_batches_too_are_trained(rule):
    (outcome,) = switched(rule, "none", 5.0)
    losses = outcome.arrays["train_loss"]
    assert losses[-1] < losses[0]


class Choosing(nn.Module):
    """Layers of which the numbers of the model itself choose some."""

    def __init__(self, how):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.head, self.how = nn.Linear(3, 3), how

    def forward(self, x):
        score = (self.head.weight * 30).sum().sin()
        if self.how == "branch":
            found = self.first(x) if score > 0 else self.second(self.first(x))
        elif self.how == "routes":
            goes = (x @ self.head.weight.T)[:, 0] > 0
            found = self.first(x)
            found = found.index_put((goes.nonzero()[:, 0],), self.second(x[goes]))
        else:
            found = self.first(x) + score.relu() * (x @ self.first.weight)
        return self.head(found.tanh())


def make_choosing(how):
    return Choosing(how)


@pytest.mark.parametrize("structure", ["kron", "block"])
@pytest.mark.parametrize("how", ["branch", "routes", "gate"])
def test_models_of_a_tile_have_the_blocks_that_each_has_by_itself(how, structure):
    data = blobs()
    model = {"factory": f"{__name__}:make_choosing", "kwargs": {"how": how}}
    fits = train_all([train_member(data, model=model, seed=seed) for seed in range(5)])
    several = [
        member(
            "probe.factors",
            {"structure": structure},
            weights=weights_of(fit),
            data=data,
        )
        for fit in fits
    ]
    together = compute("probe.factors", several)
    apart = [compute("probe.factors", [one])[0] for one in several]
    names = [tuple(outcome.arrays["block"].tolist()) for outcome in apart]
    assert how == "routes" or len(set(names)) > 1
    for found, expected in zip(together, apart, strict=True):
        assert found.arrays["block"].tolist() == expected.arrays["block"].tolist()
        for name in ("values", "left_values", "ritz_values"):
            np.testing.assert_allclose(
                found.arrays[name], expected.arrays[name], rtol=1e-9, atol=1e-12
            )


@pytest.mark.parametrize("rule", RULES)
def test_models_that_diverge_end_in_a_verdict_where_uses_are_tried(rule):
    fields = {"step": "lr", "damping": 1e-3, "damping_adaptation_interval": None}
    rates = [{**RULES[rule], **fields, "lr": lr} for lr in (0.01, 1e30)]
    model = {"factory": f"{__name__}:make_switched", "kwargs": {"how": "none"}}
    members = [
        train_member(blobs(), model=model, rule=one, batch_size=10) for one in rates
    ]
    fine, diverged = train_all(members)
    assert (fine.status, diverged.status) == ("ok", "diverged")
    (alone,) = train_all(members[:1])
    np.testing.assert_array_equal(fine.arrays["weights"], alone.arrays["weights"])
