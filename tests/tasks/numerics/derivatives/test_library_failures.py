"""Layers that torch cannot derive in all ways: equal to a twin, or refused by name."""

import math
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.numerics import residual
from curvflow.testing import dense_ggn, dense_hessian, sample_gradients

N, CLASSES, TOKENS = 9, 3, 5


class Packed(nn.Module):
    """A recurrent layer of sequences of their own lengths, packed or padded."""

    def __init__(self, *, is_packed):
        super().__init__()
        self.is_packed = is_packed
        self.rnn, self.out = nn.GRU(2, 3, batch_first=True), nn.Linear(3, CLASSES)

    def forward(self, x):
        lengths = x[..., 0].count_nonzero(1)
        if self.is_packed:
            packed = pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            states, _ = self.rnn(packed)
            states, _ = pad_packed_sequence(
                states, batch_first=True, total_length=x.shape[1]
            )
        else:
            states, _ = self.rnn(x)
        is_there = torch.arange(x.shape[1]) < lengths[:, None]
        return self.out((states * is_there[..., None]).sum(1))


class Bag(nn.Module):
    """What an embedding bag computes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(TOKENS, 3))

    def forward(self, tokens):
        return nn.functional.embedding(tokens, self.weight).mean(1)


class Normed(nn.Module):
    """What a layer with a spectral norm in training computes, once."""

    def __init__(self, layer):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3))
        self.weight = nn.Parameter(torch.zeros(3, 4))
        (norm,) = layer.parametrizations.weight
        weight = layer.parametrizations.weight.original.detach()
        with torch.no_grad():
            u = normalize(weight @ norm._v, dim=0, eps=norm.eps)
            v = normalize(weight.T @ u, dim=0, eps=norm.eps)
        self.register_buffer("u", u)
        self.register_buffer("v", v)

    def forward(self, x):
        return x @ (self.weight / (self.u @ self.weight @ self.v)).T + self.bias


class Margins(nn.Module):
    """What a squared margin computes."""

    def forward(self, outputs, labels):
        rows = torch.arange(len(outputs))
        gaps = (1 - outputs[rows, labels][:, None] + outputs).clamp(min=0) ** 2
        is_other = torch.arange(CLASSES) != labels[:, None]
        return ((gaps * is_other).sum(1) / CLASSES).mean()


def sequences():
    x = torch.randn(N, 4, 2).double()
    x[torch.arange(4) >= torch.randint(1, 5, (N, 1))] = 0
    return x


def tokens():
    return torch.randint(TOKENS, (N, 4))


def vectors():
    return torch.randn(N, 4).double()


def with_head(layer, *, width=3):
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(width, CLASSES)).double()


def packed():
    nets = Packed(is_packed=True).double(), Packed(is_packed=False).double()
    return *nets, sequences(), nn.CrossEntropyLoss(), nn.CrossEntropyLoss()


def bag():
    nets = with_head(nn.EmbeddingBag(TOKENS, 3)), with_head(Bag())
    return *nets, tokens(), nn.CrossEntropyLoss(), nn.CrossEntropyLoss()


def normed():
    net = with_head(spectral_norm(nn.Linear(4, 3))).train()
    twin = with_head(Normed(net[0]))
    return net, twin, vectors(), nn.CrossEntropyLoss(), nn.CrossEntropyLoss()


def limited():
    net = nn.Sequential(
        nn.Embedding(TOKENS, 3, max_norm=1.0), nn.Flatten(), nn.Linear(12, CLASSES)
    ).double()
    return net, None, tokens(), nn.CrossEntropyLoss(), None


def margins():
    nets = with_head(nn.Linear(4, 3)), with_head(nn.Linear(4, 3))
    return *nets, vectors(), nn.MultiMarginLoss(p=2), Margins()


LAYERS = {f.__name__: f for f in (packed, bag, normed, limited, margins)}


def dense(operator):
    return operator @ torch.eye(operator.shape[0], dtype=torch.float64)


def fisher(kind, **settings):
    return lambda *of: dense(curvflow.fisher(*of, kind=kind, **settings))


MATRICES = {
    "hessian": lambda *of: dense(curvflow.hessian(*of)),
    "few": lambda *of: dense(curvflow.hessian(*of, num_products=4)),
    "residual": lambda *of: dense(residual(*of)),
    "ggn": lambda *of: dense(curvflow.ggn(*of)),
    "type-2": fisher("type-2"),
    "mc": fisher("mc", mc_samples=2),
    "empirical": fisher("empirical"),
    "covariance": lambda *of: dense(curvflow.gradient_covariance(*of)),
    "kronecker": lambda *of: dense(curvflow.kronecker(*of).operator),
}


def second_moment(net, loss, data):
    rows = sample_gradients(net, loss, *data)
    return rows.T @ rows / len(rows)


def covariance(net, loss, data):
    slope = sample_gradients(net, loss, *data).mean(0)
    return second_moment(net, loss, data) - torch.outer(slope, slope)


def curvature(net, loss, data):
    return dense_hessian(net, loss, *data)


def gauss_newton(net, loss, data):
    return dense_ggn(net, loss, *data)


# Matrices of twins by plain autograd, where it has them.
WRITTEN_OUT = {
    "hessian": curvature,
    "few": curvature,
    "residual": lambda *of: curvature(*of) - gauss_newton(*of),
    "ggn": gauss_newton,
    "type-2": gauss_newton,
    "empirical": second_moment,
    "covariance": covariance,
}
GRADIENTS = {"empirical", "covariance"}
FEW = {"num_chains": 2, "num_draws": 8, "num_burnin_steps": 2, "num_steps_bw_draws": 1}
FIXED = {"calibrate": "none", "sampling_method": "sgld", "lr": 1e-4, "localization": 1}

# What is refused, and by which words: matrices by name, and the rest together.
REFUSED = {
    "packed": ((), ""),
    "bag": ({*MATRICES} - GRADIENTS - {"kronecker"}, "EmbeddingBag at '0' without"),
    "normed": ((), ""),
    "limited": ({*MATRICES}, "Embedding at '0' with max_norm 1,.*to None"),
    "margins": ({*MATRICES} - GRADIENTS - {"residual"}, "got MultiMarginLoss"),
}
# Factors of layers that are not known as such are others.
OTHER_FACTORS = {"bag", "normed"}


def drawn(name, seed):
    torch.manual_seed(seed)
    net, twin, x, loss, twin_loss = LAYERS[name]()
    if twin is not None:
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            theirs.data = ours.data.clone()
    y = torch.randint(CLASSES, (N,))
    return (net, loss, (x, y)), (twin, twin_loss, (x, y))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_matrix_is_that_of_a_twin_or_the_layer_is_named(name, matrix, seed):
    of, twin = drawn(name, seed)
    before = {key: value.clone() for key, value in of[0].state_dict().items()}
    refused, words = REFUSED[name]
    if matrix in refused:
        with pytest.raises(InputError, match=words) as caught:
            MATRICES[matrix](*of)
        assert "\n" not in str(caught.value)
    else:
        found = MATRICES[matrix](*of)
        if matrix != "kronecker" or name not in OTHER_FACTORS:
            expected = WRITTEN_OUT.get(matrix, MATRICES[matrix])(*twin)
            scale = float(expected.abs().max())
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * scale)
    for key, value in of[0].state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("matrix", sorted(GRADIENTS))
def test_second_moments_of_first_derivatives_are_those_of_all_batches(matrix, several):
    (net, loss, (x, y)), twin = drawn("bag", 3)
    data = [(x[:4], y[:4]), (x[4:], y[4:])] if several else (x, y)
    expected = MATRICES[matrix](*twin)
    scale = float(expected.abs().max())
    found = MATRICES[matrix](net, loss, data)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("name", LAYERS)
def test_chains_move_or_the_layer_is_named(name):
    of, _ = drawn(name, 0)
    refused, words = REFUSED[name]
    for estimate in (curvflow.llc, curvflow.wbic):
        if "hessian" in refused:
            with pytest.raises(InputError, match=words):
                estimate(*of, **FEW)
        else:
            assert math.isfinite(estimate(*of, **FEW).value)
    if name == "limited":
        with pytest.raises(InputError, match=words):
            curvflow.llc(*of, **FEW, **FIXED)
    else:  # which needs gradients alone
        assert math.isfinite(curvflow.llc(*of, **FEW, **FIXED).value)


@pytest.mark.parametrize("name", LAYERS)
def test_a_monitor_measures_or_names_the_layer(name):
    of, _ = drawn(name, 0)
    refused, words = REFUSED[name]
    if name == "limited":
        with pytest.raises(InputError, match=words):
            curvflow.Monitor(*of)
        return
    numbers = curvflow.Monitor(*of).measure()
    assert ("sharpness" in numbers) == ("hessian" not in refused)
    assert re.search(words, numbers["reason"])
    assert math.isfinite(numbers["noise_scale"])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_function_without_a_layer_is_named_by_its_module(seed):
    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.randn(TOKENS, CLASSES).double())

        def forward(self, tokens):
            return nn.functional.embedding_bag(tokens, self.rows)

    torch.manual_seed(seed)
    of = Bags(), nn.CrossEntropyLoss(), (tokens(), torch.randint(CLASSES, (N,)))
    with pytest.raises(InputError, match="second derivatives, got Bags without them"):
        MATRICES["ggn"](*of)
    alone = (nn.EmbeddingBag(TOKENS, CLASSES).double(), *of[1:])
    with pytest.raises(InputError, match="got EmbeddingBag without them"):
        MATRICES["hessian"](*alone)
    order = "forward_over_reverse"
    (net, loss, data), _ = drawn("packed", seed)
    with pytest.raises(InputError, match="forward derivatives, got GRU at 'rnn' with"):
        dense(curvflow.hessian(net, loss, data, order=order))


class Branching(nn.Module):
    """A loss that looks at values, which no transform of functorch lets it."""

    def forward(self, outputs, labels):
        losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return losses.mean() if losses.sum().item() >= 0 else -losses.mean()


@pytest.mark.parametrize("matrix", sorted(GRADIENTS))
def test_second_moments_are_taken_of_losses_that_branch_on_values(matrix):
    torch.manual_seed(4)
    net, of = with_head(nn.Linear(4, 3)), (vectors(), torch.randint(CLASSES, (N,)))
    found = MATRICES[matrix](net, Branching(), of)
    expected = MATRICES[matrix](net, nn.CrossEntropyLoss(), of)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


class Deaf(torch.autograd.Function):
    """A square whose gradient does not say that it depends on what it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope.detach() * 2 * x


class Squares(nn.Module):
    def forward(self, x):
        return Deaf.apply(x)


def test_a_gradient_that_cannot_be_derived_rightly_is_not_taken_for_a_right_one():
    torch.manual_seed(5)
    linear, head = nn.Linear(4, 3), nn.Linear(3, CLASSES)
    net = nn.Sequential(linear, Squares(), head).double()
    data = vectors(), torch.randint(CLASSES, (N,))
    with pytest.raises(InputError, match="Squares at '1' without them"):
        MATRICES["ggn"](net, nn.CrossEntropyLoss(), data)

    class Square(nn.Module):
        def forward(self, x):
            return x.square()

    twin = nn.Sequential(linear, Square(), head)
    for matrix in GRADIENTS:
        found = MATRICES[matrix](net, nn.CrossEntropyLoss(), data)
        expected = MATRICES[matrix](twin, nn.CrossEntropyLoss(), data)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


class Unreached(nn.Module):
    """Has weights that its outputs do not depend on."""

    def __init__(self, keeps):
        super().__init__()
        self.layer, self.keeps = nn.Linear(4, CLASSES), keeps

    def forward(self, x):
        outputs = 0 * self.layer(x) if self.keeps else torch.zeros(len(x), CLASSES)
        return outputs.double() + torch.arange(CLASSES)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("matrix", ["ggn", "type-2", "mc", "empirical", "covariance"])
def test_outputs_that_do_not_reach_the_weights_have_no_curvature(
    matrix, keeps, several
):
    net, x = Unreached(keeps).double(), vectors()
    y = torch.randint(CLASSES, (N,))
    data = [(x[:4], y[:4]), (x[4:], y[4:])] if several else (x, y)
    found = MATRICES[matrix](net, nn.CrossEntropyLoss(), data)
    assert found.shape == (15, 15)
    assert not found.any()


def clipped(layer, *, scale):
    """Return a net whose embedding has rows of some length, and its data."""
    torch.manual_seed(6)
    net = nn.Sequential(layer(TOKENS, 3, max_norm=0.5), nn.Flatten(), nn.LazyLinear(3))
    net, x = net.double(), tokens()
    net[0].max_norm = None
    net(x)
    net[0].max_norm = 0.5
    rows = torch.randn(TOKENS, 3).double()
    net[0].weight.data = scale * rows / rows.norm(dim=1, keepdim=True)
    return net, nn.CrossEntropyLoss(), (x, torch.randint(CLASSES, (N,)))


OPERATORS = {
    "hessian": curvflow.hessian,
    "ggn": curvflow.ggn,
    "empirical": partial(curvflow.fisher, kind="empirical"),
    "covariance": curvflow.gradient_covariance,
    "kronecker": lambda *of, params=None: (
        curvflow.kronecker(*of, layers=params).operator
    ),
}


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("matrix", OPERATORS)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_that_is_not_derived_by_keeps_its_rows(layer, matrix, is_frozen):
    settings = {} if is_frozen else {"params": ["2.*"]}
    for scale in (0.51, 0.49):
        net, *of = clipped(layer, scale=scale)
        net[0].weight.requires_grad_(not is_frozen)
        before = net[0].weight.clone()
        if scale > 0.5:
            with pytest.raises(InputError, match=f"{layer.__name__} at '0' with max_n"):
                OPERATORS[matrix](net, *of, **settings)
        else:
            found = dense(OPERATORS[matrix](net, *of, **settings))
            net[0].max_norm = None
            expected = dense(OPERATORS[matrix](net, *of, **settings))
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(net[0].weight, before, rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("matrix", OPERATORS)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_rows_that_no_call_looks_up_may_be_longer(layer, matrix, seed):
    net, loss, (x, y) = clipped(layer, scale=0.49)
    torch.manual_seed(seed)
    x = torch.randint(TOKENS - 1, x.shape)
    net[0].weight.requires_grad_(False)[TOKENS - 1] *= 3
    before = net[0].weight.clone()
    found = dense(OPERATORS[matrix](net, loss, (x, y)))
    torch.testing.assert_close(net[0].weight, before, rtol=0, atol=0)
    # Of any batch, one that looks it up is refused.
    others = x.clone()
    others[seed, 0] = TOKENS - 1
    with pytest.raises(InputError, match=f"{layer.__name__} at '0' with max_n"):
        dense(OPERATORS[matrix](net, loss, [(x, y), (others, y)]))
    torch.testing.assert_close(net[0].weight, before, rtol=0, atol=0)
    net[0].max_norm = None
    expected = dense(OPERATORS[matrix](net, loss, (x, y)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("matrix", OPERATORS)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_divided_by_counts_are_refused_where_they_are_taken(layer, matrix):
    net, *of = clipped(layer, scale=0.4)
    net[0].max_norm, net[0].scale_grad_by_freq = None, True
    with pytest.raises(InputError, match=f"{layer.__name__} at '0' with scale_grad"):
        OPERATORS[matrix](net, *of)
    found = dense(OPERATORS[matrix](net, *of, params=["2.*"]))
    net[0].scale_grad_by_freq = False
    expected = dense(OPERATORS[matrix](net, *of, params=["2.*"]))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def outcome(call):
    try:
        return call()
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("matrix", OPERATORS)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_of_some_rows_alone_are_those_of_all(layer, matrix):
    pair = []
    for is_sparse in (False, True):
        torch.manual_seed(3)
        net = with_head(layer(TOKENS, 3, sparse=is_sparse))
        net.insert(1, nn.Flatten())
        net[-1] = nn.Linear(12 if layer is nn.Embedding else 3, CLASSES).double()
        data = tokens(), torch.arange(N) % CLASSES
        of = net, nn.CrossEntropyLoss(), data
        pair.append(outcome(lambda of=of: dense(OPERATORS[matrix](*of))))
        assert net[0].sparse == is_sparse
    if isinstance(pair[0], str):
        assert "EmbeddingBag at '0' without" in pair[0]
        assert pair[1] == pair[0]
    else:
        torch.testing.assert_close(pair[1], pair[0], rtol=1e-12, atol=1e-14)


X, Y = torch.linspace(-1, 1, 24).double().reshape(8, 3), torch.arange(8) % 2


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()


def labels(*rows, ignored=-100):
    """Return labels of eight samples, some of which stand for none."""
    return Y.clone().index_fill(0, torch.tensor(rows), ignored)


@pytest.mark.parametrize("where", [(0,), (7,), tuple(range(8))])
@pytest.mark.parametrize("matrix", [curvflow.hessian, curvflow.ggn])
def test_a_loss_by_name_says_what_ignores_labels(matrix, where):
    data = [(X[:4], labels(*where)[:4]), (X[4:], labels(*where)[4:])]
    for given in (data, (X, labels(*where))):
        with pytest.raises(InputError, match=r"-100, the ignore_index .*CrossEntropyL"):
            matrix(small(), "cross_entropy", given) @ torch.ones(26).double()


@pytest.mark.parametrize("ignored", [-100, 1])
def test_second_moments_of_ignored_labels_blame_no_weights_of_classes(ignored):
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    y = labels(0, 3, ignored=ignored)
    for matrix in (
        partial(curvflow.fisher, kind="empirical"),
        curvflow.gradient_covariance,
    ):
        with pytest.raises(InputError, match=f"ignore_index, {ignored}") as caught:
            matrix(small(), loss, (X, y))
        assert "weights" not in str(caught.value)
        assert f"{int((y == ignored).sum())} of 8" in str(caught.value)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0]).double()])
def test_a_batch_without_a_label_that_counts_is_named(weight):
    loss = nn.CrossEntropyLoss(weight=weight)
    for matrix in (curvflow.hessian, curvflow.ggn):
        with pytest.raises(
            InputError,
            match=r"a label that counts in each batch, got .* -100, alone",
        ):
            matrix(small(), loss, (X, labels(*range(8))))


def test_ignored_labels_are_left_out_of_what_is_a_mean_over_the_others():
    y, few = labels(0, 3), [1, 2, 4, 5, 6, 7]
    for matrix in (
        curvflow.hessian,
        curvflow.ggn,
        partial(curvflow.fisher, kind="type-2"),
    ):
        found, expected = (
            matrix(small(), nn.CrossEntropyLoss(), data) @ torch.eye(26).double()
            for data in ((X, y), (X[few], Y[few]))
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_loss_of_each_term_is_zero_where_no_label_counts():
    loss, data = nn.CrossEntropyLoss(reduction="none"), (X, labels(*range(8)))
    assert not (curvflow.hessian(small(), loss, data) @ torch.ones(26).double()).any()


@pytest.mark.parametrize("matrix", MATRICES)
def test_data_of_which_the_targets_are_not_known_are_refused(matrix):
    loss = nn.CrossEntropyLoss()
    for batch in ((X,), (X, X, Y)):
        with pytest.raises(InputError, match=r"\(inputs, targets\), got one of"):
            MATRICES[matrix](small(), loss, batch)
    with pytest.raises(InputError, match="batches, got TensorDataset of single"):
        MATRICES[matrix](small(), loss, TensorDataset(X, Y))


def test_more_in_a_batch_is_for_forward():
    def forward(module, batch):
        return module(batch[0] + batch[2])

    for matrix in (curvflow.hessian, curvflow.ggn, curvflow.gradient_covariance):
        found, expected = (
            matrix(small(), nn.CrossEntropyLoss(), data, **settings)
            @ torch.eye(26).double()
            for data, settings in (
                ((X, Y, X), {"forward": forward}),
                ((2 * X, Y), {}),
            )
        )
        torch.testing.assert_close(found, expected)
