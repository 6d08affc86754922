"""Gauss-Newton, Fisher and covariance matrices in a batch, against dense twins."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jacrev
from torch.nn.functional import one_hot

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import (
    BatchedGaussNewton,
    BatchedHessian,
    BatchedResidual,
    dense_hessian,
    sample_losses,
    stream,
)
from tests.tasks.toys import TANH_NET, as_data, blobs, waves

CASES = [
    pytest.param(blobs(), "cross_entropy", id="cross_entropy"),
    pytest.param(waves(), "mse", id="mse"),
    pytest.param(waves(), "sse", id="sse"),
]


def posed(data, loss, models=3, model=TANH_NET):
    problem = pose(parse_model(model), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    init = parse_model(model).init
    drawn = [
        initial_weights(problem.network, stream(s, "init"), init) for s in range(models)
    ]
    take = (problem.network.outputs, sample_losses(loss))
    return problem, take, torch.stack(drawn) + 0.1, samples.inputs, samples.targets


def columns_of(operator):
    models, size, _ = operator.shape
    return operator @ torch.eye(size, dtype=operator.dtype).expand(models, -1, -1)


def assert_equal(result, expected, rtol=1e-10):
    near = {"rtol": 0, "atol": rtol * float(expected.abs().max())}
    torch.testing.assert_close(result, expected, **near)


def jacobian(problem, weights_D, x):
    """Return outputs (N, C) and their Jacobian (N, C, D)."""

    def outputs(w):
        return problem.network.outputs(w[None], x)[0]

    return outputs(weights_D), jacrev(outputs)(weights_D)


def curvature_of(loss, outputs_NC):
    """The Hessian of a sample's loss by its outputs, written down."""
    classes = outputs_NC.shape[1]
    if loss == "cross_entropy":
        p = outputs_NC.softmax(-1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    eye = torch.eye(classes, dtype=outputs_NC.dtype).expand(len(outputs_NC), -1, -1)
    return 2 * eye / (classes if loss == "mse" else 1)


def dense(problem, loss, weights_MD, x):
    result = []
    for w in weights_MD:
        outputs, J_NCD = jacobian(problem, w, x)
        B_NCC = curvature_of(loss, outputs)
        result.append(torch.einsum("nci,ncd,ndj->ij", J_NCD, B_NCC, J_NCD))
    return torch.stack(result) / x.shape[1]


def dense_rows(problem, weights_MD, x, y):
    """Return the gradients of the samples' losses, (M, N, D)."""
    return torch.stack(
        [jacrev(lambda w: problem.losses(w[None], x, y)[0])(w) for w in weights_MD]
    )


@pytest.mark.parametrize(("data", "loss"), CASES)
def test_the_gauss_newton_matrix_is_its_dense_twin(data, loss):
    problem, take, weights, x, y = posed(data, loss)
    G = dense(problem, loss, weights, x)
    assert_equal(columns_of(BatchedGaussNewton(*take, weights, x, y)), G)
    H = torch.stack([dense_hessian(problem.losses, w, x[0], y[0]) for w in weights])
    assert_equal(columns_of(BatchedResidual(*take, weights, x, y)), H - G)


@pytest.mark.parametrize(("data", "loss"), CASES)
def test_the_fisher_matrix_over_the_models_labels_is_the_gauss_newton_one(data, loss):
    # F = E[s s'] over the labels of exp(-loss): all classes by their probability, and
    # for squares a Gaussian of precision B in each output, with scores of variance B.
    problem, take, weights, x, y = posed(data, loss)
    F = []
    for w in weights:
        outputs, J_NCD = jacobian(problem, w, x)
        if loss == "cross_entropy":
            p = outputs.softmax(-1)
            scores = p[:, None, :] - torch.eye(p.shape[1], dtype=p.dtype)
            rows = torch.einsum("nrc,ncd->nrd", scores, J_NCD) * p.sqrt()[:, :, None]
        else:
            rows = curvature_of(loss, outputs).sqrt() @ J_NCD
        F.append(torch.einsum("nri,nrj->ij", rows, rows) / x.shape[1])
    operator = BatchedGaussNewton(*take, weights, x, y, kind="type-2", loss=loss)
    assert_equal(columns_of(operator), torch.stack(F))


@pytest.mark.parametrize(("data", "loss"), CASES)
def test_moments_of_gradients_are_their_dense_twins(data, loss):
    problem, take, weights, x, y = posed(data, loss)
    rows = dense_rows(problem, weights, x, y)
    second = rows.mT @ rows / x.shape[1]
    slope = rows.mean(1)
    empirical = BatchedGaussNewton(*take, weights, x, y, kind="empirical")
    covariance = BatchedGaussNewton(*take, weights, x, y, kind="covariance")
    assert_equal(columns_of(empirical), second)
    outer = slope[:, :, None] * slope[:, None, :]
    assert_equal(columns_of(covariance), second - outer)
    assert_equal(covariance.mean_gradient(), slope)


@pytest.mark.parametrize(("data", "loss"), CASES)
def test_a_sampled_fisher_matrix_is_fair(data, loss):
    problem, take, weights, x, y = posed(data, loss, models=2)
    G = dense(problem, loss, weights, x)
    v = torch.ones_like(weights)
    exact = (v * (G @ v[:, :, None]).squeeze(-1)).sum(1)
    draws = []
    for seed in range(60):
        seeds = [2 * seed, 2 * seed + 1]
        operator = BatchedGaussNewton(
            *take, weights, x, y, kind="mc", loss=loss, mc_samples=5, seeds=seeds
        )
        draws.append((v * (operator @ v)).sum(1))
    drawn = torch.stack(draws)
    sem = drawn.std(0) / 60**0.5
    assert (sem > 0).all()
    assert ((drawn.mean(0) - exact).abs() < 5 * sem).all()


def test_sampled_labels_belong_to_the_model_and_its_seed():
    _, take, weights, x, y = posed(blobs(), "cross_entropy")
    same = weights[:1].expand(3, -1)

    def made(seeds, weights=same):
        return BatchedGaussNewton(
            *take, weights, x, y, kind="mc", loss="cross_entropy", seeds=seeds
        )

    v = torch.ones_like(same)
    product = made([4, 5, 4]) @ v
    assert_equal(product[0], product[2])
    assert not torch.allclose(product[0], product[1])
    assert_equal(made([4, 5, 4]) @ v, product)
    assert_equal(made([4, 5, 4]).select(torch.tensor([1, 0])) @ v[:2], product[[1, 0]])
    drawn = made([4, 5, 4])
    drawn @ v
    assert_equal(drawn.select(torch.tensor([1, 0])) @ v[:2], product[[1, 0]])


def test_a_linear_model_has_no_residual():
    linear = {"kind": "linear"}
    problem, take, weights, x, y = posed(waves(), "mse", model=linear)
    H = BatchedHessian(problem.losses, weights, x, y)
    G = BatchedGaussNewton(*take, weights, x, y)
    assert_equal(columns_of(G), columns_of(H))
    assert float(columns_of(BatchedResidual(*take, weights, x, y)).abs().max()) < 1e-14


KINDS = ["ggn", "type-2", "mc", "empirical", "covariance", "residual"]


@pytest.mark.parametrize("kind", KINDS)
def test_passes_change_no_product_of_300_samples(kind):
    _, take, weights, x, y = posed(blobs(300), "cross_entropy", models=5)
    block = torch.randn(*weights.shape, 2, generator=stream(0, "t")).double()

    def made(**passes):
        if kind == "residual":
            return BatchedResidual(*take, weights, x, y, **passes)
        return BatchedGaussNewton(
            *take,
            weights,
            x,
            y,
            kind=kind,
            loss="cross_entropy",
            seeds=range(5),
            **passes,
        )

    whole = made() @ block
    for passes in ({"batch_size": 77}, {"batch_size": 300, "models_per_pass": 2}):
        assert_equal(made(**passes) @ block, whole, rtol=1e-12)
    both = made(batch_size=128, models_per_pass=3)
    assert_equal(both @ block[..., 0], whole[..., 0], rtol=1e-12)
    chosen = torch.tensor([3, 1])
    assert_equal(both.select(chosen) @ block[chosen], whole[chosen], rtol=1e-12)
    # Symmetric, and what is kept of one pass serves the next block too.
    one = made()
    u, v = block.unbind(-1)
    assert_equal((u * (one @ v)).sum(1), (v * (one @ u)).sum(1), rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "fisher"}, "kind: expected one of ggn, type-2"),
        ({"kind": "mc"}, "expected a likelihood known by name for mc, got None"),
        ({"kind": "type-2", "loss": "hinge"}, "got hinge"),
    ],
)
def test_kinds_and_likelihoods_that_are_unknown_are_refused(settings, message):
    _, take, weights, x, y = posed(blobs(), "cross_entropy")
    with pytest.raises(InputError, match=message):
        BatchedGaussNewton(*take, weights, x, y, **settings)


def test_the_memory_of_a_product_is_reported_without_making_it():
    problem, take, weights, x, y = posed(blobs(300), "cross_entropy")
    for operator in (
        BatchedGaussNewton(*take, weights, x, y),
        BatchedHessian(problem.losses, weights, x, y),
    ):
        one, eight = (operator.product_bytes(columns) for columns in (1, 8))
        assert 8 * weights.numel() * 8 * 2 < eight < 16 * one
        cut = BatchedHessian(problem.losses, weights, x, y, batch_size=30)
        assert cut.product_bytes(8) < eight / 2


@pytest.mark.parametrize("kind", ["empirical", "covariance"])
def test_first_derivatives_alone_change_no_moments_of_models(kind):
    _, take, weights, x, y = posed(blobs(100), "cross_entropy")
    made = partial(BatchedGaussNewton, *take, weights, x, y, kind=kind)
    whole = columns_of(made())
    for batch_size in (None, 70):
        found = made(derivatives="first", batch_size=batch_size)
        assert_equal(columns_of(found), whole, rtol=1e-12)


def make_shared():
    """One layer used twice, behind a convolution and a frozen batch norm."""
    layer = nn.Linear(8, 8)
    return nn.Sequential(
        nn.Conv2d(3, 2, 3),
        nn.BatchNorm2d(2),
        nn.Tanh(),
        nn.Flatten(),
        layer,
        nn.Tanh(),
        layer,
        nn.Linear(8, 3),
    ).eval()


NETS = {
    "residual": {"kind": "preresnet", "depth": 8, "width": 0.125},
    "shared": {
        "factory": "tests.tasks.numerics.derivatives.test_gauss_newton:make_shared"
    },
}


@pytest.mark.parametrize("name", NETS)
def test_networks_of_images_have_their_dense_twins(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3, 4, 4))
    data = as_data(dataset(x, np.arange(4) % 3, x[:0], np.zeros(0, dtype=int)))
    problem, take, weights, x, y = posed(data, "cross_entropy", 2, NETS[name])
    weights, fixed = problem.network.split(weights)
    v = torch.randn(*weights.shape, 2, generator=stream(0, "t")).double()

    def outputs(w, s):
        return problem.network.outputs(torch.cat([w, s])[None], x)[0]

    G, E, H = [], [], []
    for w, s, u in zip(weights, fixed, v, strict=True):
        J_NCD = jacrev(outputs)(w, s)
        B_NCC = curvature_of("cross_entropy", outputs(w, s))
        G.append(torch.einsum("nci,ncd,ndk->ik", J_NCD, B_NCC, J_NCD @ u))
        scores = outputs(w, s).softmax(-1) - one_hot(y[0], 3)
        rows = torch.einsum("nc,nci->ni", scores, J_NCD)
        E.append(rows.T @ (rows @ u))
        leaf = w.clone().requires_grad_()
        total = problem.losses(torch.cat([leaf, s])[None], x, y).sum()
        (slope,) = torch.autograd.grad(total, leaf, create_graph=True)
        columns = [
            torch.autograd.grad(slope, leaf, column, retain_graph=True)[0]
            for column in u.T
        ]
        H.append(torch.stack(columns, dim=1))
    G, E, H = (torch.stack(result) / 4 for result in (G, E, H))
    made = partial(BatchedGaussNewton, *take, weights, x, y, fixed_MS=fixed)
    assert_equal(made() @ v, G)
    assert_equal(made(kind="empirical") @ v, E)
    residual = BatchedResidual(*take, weights, x, y, fixed_MS=fixed)
    assert_equal(residual @ v, H - G)
