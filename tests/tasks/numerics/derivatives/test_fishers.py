"""Fisher matrices by their rows, against dense ones."""

import pytest
import torch
from torch.func import hessian, jacrev

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import (
    fisher_draws,
    fisher_roots,
    fisher_rows,
    sample_losses,
)
from tests.tasks.rules.checks import started
from tests.tasks.toys import blobs, waves

NET = {"kind": "mlp", "hidden": [4], "activation": "tanh"}
LOSSES = ["cross_entropy", "mse", "sse"]
MODELS = 2


def posed(loss, num_samples=7):
    data = blobs(num_samples) if loss == "cross_entropy" else waves(num_samples)
    problem = pose(parse_model(NET), loss, data)
    weights = started(MODELS, problem.network.num_parameters)
    return problem, weights, load_samples(problem, [data], "", "cpu", torch.float64)


def uniform(loss, samples, num_samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    outputs = 3 if loss == "cross_entropy" else 2
    shape = (MODELS, samples, *fisher_draws(loss, outputs, num_samples))
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def rows_of(form, loss, drawn=None):
    problem, weights, samples = posed(loss)

    def roots(outputs):
        return fisher_roots(form, loss, outputs, samples.targets, drawn)

    return fisher_rows(problem.network.outputs, weights, samples.inputs, roots)


def parts_of(loss, model):
    """Yield of each sample its Jacobian, outputs and target."""
    problem, weights, samples = posed(loss)
    for x, target in zip(samples.inputs[0], samples.targets[0], strict=True):

        def outputs(w, x=x):
            return problem.network.outputs(w[None], x[None, None])[0, 0]

        yield jacrev(outputs)(weights[model]), outputs(weights[model]), target


def loss_of(loss, outputs, target):
    return sample_losses(loss)(outputs[None, None], target[None, None])[0, 0]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_exact_matrix_is_that_of_gauss_and_newton(loss):
    rows = rows_of("exact", loss)
    for model in range(MODELS):
        expected = sum(
            J.T @ hessian(lambda f, y=y: loss_of(loss, f, y))(f) @ J
            for J, f, y in parts_of(loss, model)
        )
        result = rows[model].T @ rows[model]
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_empirical_matrix_is_that_of_the_gradients_of_the_samples(loss):
    rows = rows_of("empirical", loss)
    for model in range(MODELS):
        gradients = [
            J.T @ torch.func.grad(lambda f, y=y: loss_of(loss, f, y))(f)
            for J, f, y in parts_of(loss, model)
        ]
        torch.testing.assert_close(
            rows[model], torch.stack(gradients), rtol=1e-10, atol=1e-13
        )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_labels_drawn_from_the_model_estimate_the_exact_matrix(loss, seed):
    draws = 2000
    exact = rows_of("exact", loss)
    sampled = rows_of("sampled", loss, uniform(loss, 7, draws, seed))
    size = exact.shape[2]
    generator = torch.Generator().manual_seed(seed)
    along = torch.randn(MODELS, size, 1, generator=generator, dtype=torch.float64)
    expected = (exact @ along).square().sum((1, 2))
    each = draws * (sampled @ along).square().reshape(MODELS, 7, draws).sum(1)
    error = each.std(1) / draws**0.5
    assert ((each.mean(1) - expected).abs() < 5 * error).all()


def test_softmax_labels_follow_their_probabilities():
    outputs = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64).log()[None, None]
    drawn = torch.linspace(0, 1 - 1e-16, 1000, dtype=torch.float64)[None, None]
    roots = fisher_roots(
        "sampled", "cross_entropy", outputs, torch.zeros(1, 1), uniform=drawn
    )
    labels = (roots[0, 0] * 1000**0.5).argmin(1)
    assert labels.bincount().tolist() == [100, 200, 700]


def test_a_softmax_that_is_sure_has_no_rows():
    outputs = torch.tensor([[[1e3, 0.0, -1e3]]], dtype=torch.float64)
    roots = fisher_roots("exact", "cross_entropy", outputs, torch.zeros(1, 1))
    assert torch.equal(roots, torch.zeros(1, 1, 3, 3, dtype=torch.float64))
