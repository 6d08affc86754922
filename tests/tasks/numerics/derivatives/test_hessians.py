"""Products with the Hessian against its dense twin."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.layers import dense_layers
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import BatchedHessian, dense_hessian, stream
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.tasks.numerics.operators.adapters import Single
from tests.tasks.toys import RELU_NET, TANH_NET, blobs, waves, xor

CASES = [
    pytest.param(model, data, loss, id=f"{name}-{loss}-{data.digest}")
    for name, model in [("tanh", TANH_NET), ("relu", RELU_NET)]
    for data, loss in [
        (blobs(), "cross_entropy"),
        (waves(), "mse"),
        (waves(), "sse"),
        (xor(), "mse"),
    ]
]


def posed(model, data, loss, models=2):
    problem = pose(parse_model(model), loss, data)
    samples = load_samples(problem, [data] * models, "", "cpu", torch.float64)
    weights = [
        initial_weights(problem.network, stream(seed, "init"), parse_model(model).init)
        for seed in range(models)
    ]
    return problem, torch.stack(weights) * 1.5 + 0.1, samples


def dense_stack(problem, weights_MD, samples):
    x, y = samples.inputs[0], samples.targets[0]
    return torch.stack([dense_hessian(problem.losses, w, x, y) for w in weights_MD])


@pytest.mark.parametrize(("model", "data", "loss"), CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_columns_of_the_identity_give_the_dense_hessian(model, data, loss, order):
    problem, weights, samples = posed(model, data, loss)
    x, y = samples.inputs, samples.targets
    operator = BatchedHessian(problem.losses, weights, x, y, order=order)
    H_MDD = dense_stack(problem, weights, samples)
    assert operator.shape == H_MDD.shape
    assert operator.shape[1] < 200
    columns = torch.eye(H_MDD.shape[1], dtype=torch.float64).expand_as(H_MDD)
    scale = float(H_MDD.abs().max())
    torch.testing.assert_close(operator @ columns, H_MDD, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize(("model", "data", "loss"), CASES[:3])
def test_products_are_symmetric_and_repeat(model, data, loss):
    problem, weights, samples = posed(model, data, loss)
    operator = BatchedHessian(problem.losses, weights, samples.inputs, samples.targets)
    u, v = torch.randn(2, *weights.shape, generator=stream(0, "t"), dtype=torch.float64)
    torch.testing.assert_close(
        (u * (operator @ v)).sum(1), (v * (operator @ u)).sum(1), rtol=1e-10, atol=0
    )
    assert torch.equal(operator @ v, operator @ v)


@pytest.mark.parametrize("batch_size", [1, 7, 29, 30])
def test_unequal_micro_batches_are_weighted(batch_size):
    problem, weights, samples = posed(TANH_NET, blobs(30), "cross_entropy")
    x, y = samples.inputs, samples.targets
    whole = BatchedHessian(problem.losses, weights, x, y)
    cut = BatchedHessian(problem.losses, weights, x, y, batch_size=batch_size)
    v = torch.ones_like(weights)
    torch.testing.assert_close(cut @ v, whole @ v, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_passes_over_some_models_at_a_time_change_nothing(width, shared):
    data = [blobs(seed=0 if shared else seed) for seed in range(5)]
    problem, weights, _ = posed(TANH_NET, data[0], "cross_entropy", models=5)
    samples = load_samples(problem, data, "", "cpu", torch.float64)
    x, y = samples.inputs, samples.targets
    seen = []

    def losses(weights, inputs, targets):
        seen.append(len(weights))
        return problem.losses(weights, inputs, targets)

    columns = torch.randn(5, 45, 3, generator=stream(0, "t"), dtype=torch.float64)
    whole = BatchedHessian(problem.losses, weights, x, y) @ columns
    cut = BatchedHessian(losses, weights, x, y, batch_size=7, models_per_pass=width)
    torch.testing.assert_close(cut @ columns, whole, rtol=1e-10, atol=1e-14)
    assert 2 <= min(seen) <= max(seen) <= max(3, width)
    subset = cut.select(torch.tensor([4, 1, 0])) @ columns[[4, 1, 0]]
    torch.testing.assert_close(subset, whole[[4, 1, 0]], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_models_of_any_pass_have_the_bits_of_those_models_alone(order):
    # Of rows that are wide: of narrow ones the bits are the same anyhow.
    network = dense_layers([256, 16, 1], torch.tanh, bias=True)
    generator = stream(0, "t")
    weights, x, y, columns = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for size in [network.num_parameters]
        for shape in [(6, size), (1, 40, 256), (1, 40, 1), (6, size, 4)]
    )

    def losses(weights, inputs, targets):
        return (network.outputs(weights, inputs, None) - targets).square().sum(-1)

    operator = BatchedHessian(losses, weights, x, y, models_per_pass=2, order=order)
    whole = operator @ columns
    for first in (0, 2, 4):
        pair = torch.arange(first, first + 2)
        assert torch.equal(operator.select(pair) @ columns[pair], whole[pair])


def test_models_with_data_of_their_own_are_selected_with_them():
    data = [blobs(seed=seed) for seed in range(3)]
    problem, weights, _ = posed(TANH_NET, data[0], "cross_entropy", models=3)
    samples = load_samples(problem, data, "", "cpu", torch.float64)
    operator = BatchedHessian(problem.losses, weights, samples.inputs, samples.targets)
    v = torch.ones_like(weights)
    subset = operator.select(torch.tensor([2, 0])) @ v[:2]
    torch.testing.assert_close(subset, (operator @ v)[[2, 0]], rtol=1e-12, atol=1e-15)
    assert not torch.allclose(subset[0], subset[1])


def test_a_single_hessian_serves_scipy():
    problem, weights, samples = posed(TANH_NET, xor(), "mse")
    x, y = samples.inputs, samples.targets
    operator = Single(BatchedHessian(problem.losses, weights[:1], x, y))
    H_DD = dense_hessian(problem.losses, weights[0], x[0], y[0])
    assert operator.adjoint() is operator
    top = eigsh(operator.to_scipy(), k=2, which="LA", return_eigenvectors=False)
    expected = np.linalg.eigvalsh(H_DD.numpy())[-2:]
    np.testing.assert_allclose(np.sort(top), expected, rtol=1e-8)


def test_the_fastest_order_is_measured_once_and_kept_for_the_problem():
    problem, weights, samples = posed(TANH_NET, xor(), "mse")
    x, y = samples.inputs, samples.targets
    reported, again = [], []
    operator = BatchedHessian(
        problem.losses, weights, x, y, order="auto", key="xor", tell=reported.append
    )
    expected = BatchedHessian(problem.losses, weights, x, y) @ weights
    for _ in range(2):
        torch.testing.assert_close(operator @ weights, expected, rtol=0, atol=1e-14)
    (trial,) = reported
    assert set(trial.seconds) == {"reverse_over_reverse", "linearised"}
    assert trial.order == min(trial.seconds, key=trial.seconds.get)
    other = BatchedHessian(
        problem.losses, weights, x, y, order="auto", key="xor", tell=again.append
    )
    assert torch.equal(other @ weights, operator @ weights)
    assert again == [trial]


def test_an_order_that_a_layer_lacks_is_passed_over():
    class NoForward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, slope):
            return 3 * ctx.saved_tensors[0] ** 2 * slope

    def losses(weights, inputs, targets):
        return NoForward.apply(weights).sum(1, keepdim=True) * inputs

    reported = []
    weights = torch.arange(1.0, 5.0, dtype=torch.float64).reshape(2, 2)
    x = torch.ones(1, 3, dtype=torch.float64)
    operator = BatchedHessian(losses, weights, x, x, order="auto", tell=reported.append)
    torch.testing.assert_close(operator @ torch.ones_like(weights), 6 * weights)
    assert set(reported[0].failed) == {"linearised"}


@pytest.mark.parametrize("order", ORDERS)
def test_a_loss_that_is_linear_in_the_weights_has_no_curvature(order):
    def losses(weights, inputs, targets):
        return weights @ inputs[0].T

    x = torch.ones(1, 3, 2, dtype=torch.float64)
    operator = BatchedHessian(losses, torch.ones_like(x[0]), x, x, order=order)
    assert not (operator @ torch.ones_like(x[0])).any()


def test_homogeneous_networks_obey_eulers_identity():
    # A bias-free ReLU network of depth d has f(cw) = c^d f(w), so for the mean of
    # (f - y)^2: H w = 2/N sum_n J_n (d f_n + (d - 1)(f_n - y_n)).
    model = {**RELU_NET, "bias": False}
    problem, weights, samples = posed(model, xor(), "mse")
    x, y = samples.inputs, samples.targets
    operator = BatchedHessian(problem.losses, weights, x, y)

    def outputs(w):
        return problem.network.outputs(w[None], x)[0, :, 0]

    f_N = outputs(weights[0])
    J_ND = torch.func.jacrev(outputs)(weights[0])
    terms_N = 3 * f_N + 2 * (f_N - y[0, :, 0])
    expected = 2 / len(f_N) * J_ND.T @ terms_N
    torch.testing.assert_close(
        (operator @ weights)[0], expected, rtol=1e-10, atol=1e-14
    )


def test_the_dense_matrix_of_a_layer_norm_is_that_of_double_backward():
    # torch.func.hessian is wrong here (2.13): it derives a batch of backward passes.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    w = torch.randn(36, generator=generator, dtype=torch.float64)

    def losses(weights, inputs, targets):
        first, scale, shift, last = torch.split(weights[0], [16, 4, 4, 12])
        h = inputs[0] @ first.reshape(4, 4)
        h = torch.nn.functional.layer_norm(h, (4,), scale, shift)
        return (h @ last.reshape(4, 3)).logsumexp(1)[None]

    exact = torch.autograd.functional.hessian(
        lambda w: losses(w[None], x[None], None).mean(), w
    )
    found = dense_hessian(losses, w, x, torch.zeros(5))
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-12)


def make_grouped():
    """Return a network with a group norm, which has no rule for batched cotangents."""
    nn = torch.nn
    layers = nn.Conv1d(1, 4, 1), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten()
    return nn.Sequential(nn.Unflatten(1, (1, 3)), *layers, nn.Linear(12, 3))


def make_spectral():
    """Return a network whose norm writes into a tensor, which no record takes."""
    nn = torch.nn
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    return nn.Sequential(normed, nn.Tanh(), nn.Linear(4, 3))


LACKS = {"make_grouped": "retained", "make_spectral": "linearised"}


@pytest.mark.parametrize("factory", LACKS)
def test_an_order_that_torch_lacks_for_a_network_is_named(factory):
    model = {"factory": f"{__name__}:{factory}", "kwargs": {}}
    data = blobs()
    problem = pose(parse_model(model), "auto", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    network = problem.network
    start = initial_weights(network, stream(0, "init"), None)
    weights_MD, fixed_MS = network.split(start[None])
    found = {}
    for order in (*ORDERS, "auto"):
        operator = BatchedHessian(
            problem.losses,
            weights_MD,
            samples.inputs,
            samples.targets,
            fixed_MS=fixed_MS,
            order=order,
        )
        columns = torch.eye(weights_MD.shape[1], dtype=torch.float64)[None]
        if order == LACKS[factory]:
            with pytest.raises(InputError, match=rf"^order: .* got {order} \("):
                _ = operator @ columns
            continue
        found[order] = operator @ columns
    for product in found.values():
        torch.testing.assert_close(product, found["reverse_over_reverse"])
