"""Losses of outputs of any shape: value, Gauss-Newton and Fisher matrices agree."""

import math
from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.numerics import fisher, ggn, hessian
from curvflow.tasks.numerics.derivatives.likelihoods import likelihood_of

SAMPLES = 6


class Shaped(nn.Module):
    """A small network with outputs of a given shape."""

    def __init__(self, shape):
        super().__init__()
        torch.manual_seed(0)
        self.shape = shape
        self.layer = nn.Linear(2, math.prod(shape), dtype=torch.float64)

    def forward(self, x):
        return torch.tanh(self.layer(x)).reshape(len(x), *self.shape)


def inputs():
    return torch.randn(SAMPLES, 2, generator=torch.Generator().manual_seed(1)).double()


def values(shape):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(SAMPLES, *shape, generator=generator).double()


def labels(shape, classes, ignored=None):
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(classes, (SAMPLES, *shape), generator=generator)
    if ignored is not None:
        drawn.view(-1)[::3] = ignored
    return drawn


def squared(name, shape):
    """Return a case of squared errors: terms of the mean loss, and their curvature."""
    size = math.prod(shape)
    factor = {"sse": 2.0, "mse": 2.0 / size}[name]
    return shape, values(shape), lambda _: factor / SAMPLES * torch.eye(size).double()


def crossed(shape, axis, targets, *, is_over_terms, ignored=None):
    """Return a case of labels, with the output Hessian of the mean loss by hand."""
    counted = torch.ones(targets.shape, dtype=torch.float64)
    if ignored is not None:
        counted[targets == ignored] = 0.0
    whole = float(counted.sum()) if is_over_terms else float(counted.numel())

    def middle(number):
        def of(output):
            last = output.movedim(axis - 1 if axis > 0 else axis, -1)
            rows = last.reshape(-1, last.shape[-1])
            weights = counted[number].reshape(-1) / whole
            chances = rows.softmax(-1)
            blocks = torch.diag_embed(chances) - chances[:, :, None] * chances[:, None]
            big = torch.block_diag(
                *(w * b for w, b in zip(weights, blocks, strict=True))
            )
            places = torch.arange(output.numel()).reshape(output.shape)
            order = places.movedim(axis - 1 if axis > 0 else axis, -1).reshape(-1)
            matrix = torch.empty_like(big)
            matrix[order[:, None], order] = big
            return matrix

        return of

    return shape, targets, middle


def natural(name, shape):
    """Return a case of values by their natural parameters."""
    drawn = values(shape)
    targets = drawn.sigmoid() if name == "bce" else (2 * drawn.abs()).floor()

    def of(output):
        flat = output.reshape(-1)
        s = flat.sigmoid()
        curvature = s * (1 - s) if name == "bce" else flat.exp()
        return torch.diag(curvature) / len(flat) / SAMPLES

    return shape, targets, lambda _: of


TORCH = nn.CrossEntropyLoss
CASES = {
    "sse of one value": ("sse", squared("sse", ())),
    "mse of one value": ("mse", squared("mse", ())),
    "sse of a vector": ("sse", squared("sse", (3,))),
    "mse of a vector": ("mse", squared("mse", (3,))),
    "sse of a matrix": ("sse", squared("sse", (2, 3))),
    "mse of a matrix": ("mse", squared("mse", (2, 3))),
    "torch's mse of one value": (nn.MSELoss(), squared("mse", ())),
    "torch's mse of a matrix": (nn.functional.mse_loss, squared("mse", (2, 3))),
    "bce of a vector": ("bce", natural("bce", (3,))),
    "poisson of a matrix": ("poisson", natural("poisson", (2, 3))),
    "torch's bce of one value": (nn.BCEWithLogitsLoss(), natural("bce", ())),
    "torch's bce of a matrix, not reduced": (
        nn.BCEWithLogitsLoss(reduction="none"),
        natural("bce", (2, 3)),
    ),
    "torch's poisson": (nn.functional.poisson_nll_loss, natural("poisson", (3,))),
    "labels": (
        "cross_entropy",
        crossed((3,), -1, labels((), 3), is_over_terms=False),
    ),
    "labels of tokens, classes last": (
        "cross_entropy",
        crossed((4, 3), -1, labels((4,), 3), is_over_terms=False),
    ),
    "torch's labels": (TORCH(), crossed((3,), 1, labels((), 3), is_over_terms=True)),
    "torch's labels of tokens": (
        nn.functional.cross_entropy,
        crossed((3, 4), 1, labels((4,), 3), is_over_terms=True),
    ),
    "torch's labels of pixels": (
        TORCH(),
        crossed((3, 2, 2), 1, labels((2, 2), 3), is_over_terms=True),
    ),
    "some tokens without a label": (
        TORCH(ignore_index=-100),
        crossed((3, 4), 1, labels((4,), 3, -100), is_over_terms=True, ignored=-100),
    ),
    "some labels ignored": (
        TORCH(ignore_index=1),
        crossed((3,), 1, labels((), 3), is_over_terms=True, ignored=1),
    ),
    "losses of tokens, not reduced": (
        TORCH(reduction="none"),
        crossed((3, 4), 1, labels((4,), 3, -100), is_over_terms=False, ignored=-100),
    ),
}


@pytest.fixture(params=[*CASES.values()], ids=[*CASES], scope="module")
def case(request):
    loss, (shape, targets, middle) = request.param
    return loss, Shaped(shape), targets, middle


@cache
def by_hand(net, middle):
    """Return J'BJ of the mean loss, B given for each sample."""
    params = {name: p.detach() for name, p in net.named_parameters()}
    total = 0.0
    for number, x in enumerate(inputs()):
        jacobian = jacrev(lambda p, x=x: functional_call(net, p, (x[None],))[0])(params)
        output = net(x[None])[0].detach()
        J = torch.cat([j.reshape(output.numel(), -1) for j in jacobian.values()], 1)
        at = middle(number)
        total = total + J.T @ (at(output) if callable(at) else at) @ J
    return total


def dense(operator):
    return operator @ torch.eye(operator.shape[0], dtype=torch.float64)


def mean_loss(loss, outputs, targets):
    if callable(loss):
        return loss(outputs, targets).mean()
    if loss == "cross_entropy":
        classes = outputs.shape[-1]
        flat = outputs.reshape(-1, classes), targets.reshape(-1)
        return nn.functional.cross_entropy(*flat)
    if loss == "bce":
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets)
    if loss == "poisson":
        return nn.functional.poisson_nll_loss(outputs, targets)
    squares = (outputs - targets).square().reshape(len(outputs), -1)
    return (squares.sum(1) if loss == "sse" else squares.mean(1)).mean()


def test_the_gauss_newton_matrix_is_the_one_by_hand(case):
    loss, net, targets, middle = case
    data = (inputs(), targets)
    expected = by_hand(net, middle)
    torch.testing.assert_close(dense(ggn(net, loss, data)), expected)
    torch.testing.assert_close(dense(fisher(net, loss, data, kind="type-2")), expected)


def test_drawn_labels_give_the_same_matrix_in_the_mean(case):
    loss, net, targets, middle = case
    expected = by_hand(net, middle)
    drawn = fisher(net, loss, (inputs(), targets), kind="mc", mc_samples=5_000)
    apart = (dense(drawn) - expected).norm() / expected.norm()
    assert apart < 0.05


def test_the_hessian_is_of_the_mean_loss(case):
    loss, net, targets, _ = case
    params = {name: p.detach() for name, p in net.named_parameters()}
    sizes, x = [p.numel() for p in params.values()], inputs()

    def mean(flat):
        parts = zip(params.items(), flat.split(sizes), strict=True)
        named = {name: part.view(p.shape) for (name, p), part in parts}
        return mean_loss(loss, functional_call(net, named, (x,)), targets)

    flat = torch.cat([p.flatten() for p in params.values()])
    expected = torch.func.hessian(mean)(flat)
    torch.testing.assert_close(dense(hessian(net, loss, (x, targets))), expected)


def test_unequal_batches_give_the_matrix_of_one(case):
    loss, net, targets, _ = case
    if (
        not isinstance(loss, str)
        and (targets == getattr(loss, "ignore_index", 0)).any()
    ):
        pytest.skip("torch's mean over a batch depends on its labels")
    x = inputs()
    split = [(x[:4], targets[:4]), (x[4:], targets[4:])]
    for kind in ("type-2", "mc"):
        one, two = (
            dense(fisher(net, loss, data, kind=kind, mc_samples=3))
            for data in ((x, targets), split)
        )
        torch.testing.assert_close(one, two)


def test_losses_without_a_known_likelihood_have_none():
    assert likelihood_of(lambda outputs, targets: outputs.sum()) is None
    assert likelihood_of(TORCH(label_smoothing=0.1)) is None
    assert likelihood_of(TORCH(weight=torch.ones(3))) is None
    assert likelihood_of("absolute") is None
    assert likelihood_of("gaussian") is None
    assert likelihood_of(nn.BCEWithLogitsLoss(pos_weight=torch.ones(3))) is None
    assert likelihood_of(nn.PoissonNLLLoss(log_input=False)) is None
    assert likelihood_of(nn.PoissonNLLLoss(full=True)) is None


def test_a_parameter_without_dimensions_is_taken():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def forward(self, x):
            return self.scale * x

    x = torch.tensor([[1.0], [3.0]]).double()
    for operator in (hessian, ggn):
        torch.testing.assert_close(
            dense(operator(Scaled(), "mse", (x, x))),
            torch.tensor([[10.0]]).double(),
        )


def scaled(kind):
    """Return a loss of a class derived from one of torch, and what it computes."""

    class Scaled(kind):
        def forward(self, f, y):
            return (1 + f.square().mean(1)) * each(f, y)

    plain = kind(reduction="none")

    def each(f, y):
        losses = plain(f, y)
        return losses if losses.ndim == 1 else losses.mean(1)

    return Scaled(), lambda f, y: (1 + f.square().mean(1)) * each(f, y)


class Named(nn.MSELoss):
    """Computes what torch's does."""


@pytest.mark.parametrize(
    "kind", [nn.MSELoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss, nn.CrossEntropyLoss]
)
def test_a_class_derived_from_a_loss_of_torch_is_taken_for_what_it_computes(kind):
    torch.manual_seed(3)
    net, x = nn.Linear(4, 3).double(), torch.randn(6, 4).double()
    y = torch.randint(3, (6,)) if kind is nn.CrossEntropyLoss else torch.rand(6, 3)
    y = y.double() if y.is_floating_point() else y
    derived, function = scaled(kind)
    eye = torch.eye(15).double()
    for take in (
        curvflow.hessian,
        curvflow.ggn,
        partial(curvflow.fisher, kind="empirical"),
        partial(curvflow.kronecker, structure="block", psd="clip"),
    ):
        found, expected = (take(net, of, (x, y)) @ eye for of in (derived, function))
        torch.testing.assert_close(found, expected)
    for labels in ("type-2", "mc"):
        with pytest.raises(InputError, match="expected a likelihood known by name"):
            curvflow.fisher(net, derived, (x, y), kind=labels)
    assert likelihood_of(Named()) == likelihood_of(nn.MSELoss())


@pytest.mark.parametrize(
    "loss", [nn.PoissonNLLLoss(), nn.functional.poisson_nll_loss, "poisson"]
)
def test_targets_of_another_shape_are_not_spread_over_all_outputs(loss):
    net, x = nn.Linear(4, 1).double(), torch.randn(6, 4).double()
    for take in (curvflow.hessian, curvflow.ggn, curvflow.gradient_covariance):
        with pytest.raises(InputError, match=r"for poisson, \(6, 1\), got \(6,\)"):
            take(net, loss, (x, torch.ones(6).double()))
