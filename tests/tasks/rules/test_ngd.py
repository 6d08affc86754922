"""Natural gradient descent."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.rules import Rule
from curvflow.schemas.rules.ngd import Ngd
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import fisher_draws, fisher_roots, fisher_rows
from curvflow.tasks.registry import find
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import rule, started, step_at, trained_on
from tests.tasks.toys import as_data, blobs, train_member, waves

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.02, "num_samples": 3},
    {"lr": 0.1, "fisher": "exact"},
    {"lr": 0.1, "fisher": "empirical", "norm_match": True, "fisher_batch": 4},
]

NET = {"kind": "mlp", "hidden": [4], "activation": "tanh"}
FORMS = ["sampled", "empirical", "exact"]
LOSSES = ["cross_entropy", "mse", "sse"]


def posed(loss, model=NET):
    data = blobs() if loss == "cross_entropy" else waves()
    problem = pose(parse_model(model), loss, data)
    return problem, load_samples(problem, [data], "", "cpu", torch.float64)


def stepped(rules, problem, samples, gradient, weights):
    now = step_at(0, len(rules), batch=samples, problem=problem)
    return Updates(rules, weights, problem).step(gradient, weights, now)


def dense_step(problem, samples, form, gradient, weights, drawn, rules):
    """Take the step with the whole matrix."""

    def roots(outputs):
        loss = problem.loss
        return fisher_roots(form, loss, outputs, samples.targets, drawn)

    rows = fisher_rows(problem.network.outputs, weights, samples.inputs, roots)
    F = rows.mT @ rows / (1 if problem.loss == "sse" else samples.count)
    size = F.shape[1]
    trace = F.diagonal(dim1=1, dim2=2).sum(1)
    kappa = F.new_tensor([spec.alpha for spec in rules]) / size * trace
    damped = F + kappa[:, None, None] * torch.eye(size, dtype=torch.float64)
    lr = torch.tensor([[spec.lr] for spec in rules], dtype=torch.float64)
    return weights - lr * torch.linalg.solve(damped, gradient)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_that_with_the_dense_fisher_matrix(form, loss):
    problem, samples = posed(loss)
    weights, gradient = started(4, problem.network.num_parameters).split(2)
    rules = [
        rule(rule="ngd", lr=lr, alpha=alpha, fisher=form, num_samples=2)
        for lr, alpha in ((0.1, 0.01), (0.3, 1.0))
    ]
    drawn = None
    if form == "sampled":
        outputs = samples.targets.shape[-1]
        shape = (samples.count, *fisher_draws(loss, outputs, 2))
        now = step_at(0, 2, batch=samples, problem=problem)(slice(0, 2))
        drawn = now.draw(shape)
    expected = dense_step(problem, samples, form, gradient, weights, drawn, rules)
    actual = stepped(rules, problem, samples, gradient, weights)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_more_parameters_than_rows_are_solved_as_exactly(form):
    problem, samples = posed("cross_entropy", {**NET, "hidden": [40, 20]})
    weights, gradient = started(8, problem.network.num_parameters).split(4)
    rules = [
        rule(rule="ngd", lr=1.0, alpha=alpha, fisher=form)
        for alpha in (1e-3, 1e-2, 1.0, 4.0)
    ]
    drawn = None
    if form == "sampled":
        now = step_at(0, 4, batch=samples, problem=problem)(slice(0, 4))
        drawn = now.draw((samples.count, *fisher_draws("cross_entropy", 3, 1)))
    expected = dense_step(problem, samples, form, gradient, weights, drawn, rules)
    actual = stepped(rules, problem, samples, gradient, weights)
    for row, other, start in zip(actual, expected, weights, strict=True):
        error = (row - other).norm() / (other - start).norm()
        assert error < 1e-8


@pytest.mark.parametrize("loss", ["mse", "sse"])
def test_without_damping_one_step_solves_a_linear_regression(loss):
    data = waves()
    rules = [rule(rule="ngd", lr=1.0, alpha=1e-9, fisher="exact")] * 2
    (end,), problem = trained_on(data, {"kind": "linear"}, rules, 1, loss=loss)
    x = np.c_[data["inputs"], np.ones(len(data["inputs"]))]
    best = np.linalg.lstsq(x, data["targets"], rcond=None)[0]
    tensors = problem.network.layout.named(end)
    solution = torch.cat(
        [tensors["layer1.weight"].mT, tensors["layer1.bias"][:, None]], 1
    )
    for weights_of in solution:
        np.testing.assert_allclose(weights_of, best, rtol=1e-6, atol=1e-8)


def test_without_damping_steps_do_not_see_how_inputs_are_mixed():
    data = blobs()
    mix = np.array([[2.0, 1.0, 0.0], [0.0, 0.1, 3.0], [1.0, 0.0, 1.0]])
    mixed = as_data({**data.arrays, "inputs": data["inputs"] @ mix}, "mixed")
    model = {"kind": "logistic"}
    courses = {}
    for name in ("ngd", "sgd"):
        extra = {"alpha": 1e-10, "fisher": "exact"} if name == "ngd" else {}
        rules = [rule(rule=name, lr=0.5, **extra)] * 2
        outputs = []
        for labelled in (data, mixed):
            problem = pose(parse_model(model), "auto", labelled)
            start = torch.zeros(2, problem.network.num_parameters, dtype=torch.float64)
            course, _ = trained_on(labelled, model, rules, 5, start=start)
            inputs = torch.as_tensor(labelled["inputs"])[None]
            outputs.append(problem.network.outputs(course[-1], inputs))
        courses[name] = (outputs[0] - outputs[1]).abs().max()
    assert courses["ngd"] < 1e-6
    assert courses["sgd"] > 0.1


@pytest.mark.parametrize("form", FORMS)
def test_much_damping_leaves_the_direction_of_the_gradient(form):
    problem, samples = posed("cross_entropy")
    weights, gradient = started(4, problem.network.num_parameters).split(2)
    rules = [
        rule(rule="ngd", lr=lr, alpha=1e14, fisher=form, norm_match=lr < 1)
        for lr in (0.1, 1e12)
    ]
    taken = weights - stepped(rules, problem, samples, gradient, weights)
    torch.testing.assert_close(taken[0], 0.1 * gradient[0], rtol=1e-9, atol=1e-12)
    cosine = torch.cosine_similarity(taken[1], gradient[1], dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-12)


def test_the_step_has_the_length_of_the_gradient_on_request():
    problem, samples = posed("cross_entropy")
    weights, gradient = started(4, problem.network.num_parameters).split(2)
    gradient[1] = 0.0
    rules = [rule(rule="ngd", lr=0.5, alpha=0.01, norm_match=True)] * 2
    taken = weights - stepped(rules, problem, samples, gradient, weights)
    assert taken[0].norm().item() == pytest.approx(0.5 * gradient[0].norm().item())
    assert torch.equal(taken[1], torch.zeros_like(taken[1]))


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_of_losses_steps_as_their_mean_does(form):
    data = waves()
    one_output = as_data(dataset(data["inputs"], data["targets"][:, :1]), "one")
    rules = [rule(rule="ngd", lr=0.1, fisher=form)] * 2
    ends = [
        trained_on(one_output, NET, rules, 3, loss=loss)[0][-1]
        for loss in ("mse", "sse")
    ]
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-11)


def test_the_matrix_may_be_of_some_samples_only():
    problem, samples = posed("cross_entropy")
    weights, gradient = started(4, problem.network.num_parameters).split(2)

    def found(**rest):
        rules = [rule(rule="ngd", lr=0.1, fisher="empirical", **rest)] * 2
        return stepped(rules, problem, samples, gradient, weights)

    assert torch.equal(found(fisher_batch=30), found())
    now = step_at(0, 2, batch=samples, problem=problem)(slice(0, 2))
    subset = samples.taken(now.draw((30,)).argsort(1)[:, :6])
    rules = [rule(rule="ngd", lr=0.1)] * 2
    expected = dense_step(problem, subset, "empirical", gradient, weights, None, rules)
    torch.testing.assert_close(found(fisher_batch=6), expected, rtol=1e-9, atol=1e-11)


def test_many_models_step_as_few_do():
    problem, samples = posed("cross_entropy")
    size, models = problem.network.num_parameters, 1000
    assert 8 * models * size * 3 * samples.count > 1 << 24
    weights, gradient = started(2 * models, size).split(models)
    rules = [rule(rule="ngd", lr=0.1, fisher="empirical")] * models
    together = stepped(rules, problem, samples, gradient, weights)
    for few in (slice(0, 2), slice(499, 502), slice(998, 1000)):
        apart = stepped(rules[few], problem, samples, gradient[few], weights[few])
        torch.testing.assert_close(together[few], apart, rtol=1e-10, atol=1e-12)


def test_a_batch_norm_is_refused_by_name():
    images = as_data(dataset(np.ones((6, 1, 8, 8)), np.arange(6) % 2), "images")
    model = {"kind": "preresnet", "depth": 8, "width": 0.1, "batch_norm": True}
    problem = pose(parse_model(model), "auto", images)
    weights = started(2, problem.network.num_parameters)
    with pytest.raises(InputError, match=r"ngd: .* got preresnet with batch norm"):
        Updates([rule(rule="ngd", lr=0.1)] * 2, weights, problem)


def test_tiles_are_narrower_for_the_rows_that_a_step_holds():
    member_bytes = find("train").member_bytes

    def needed(**fields):
        fields = {"lr": 0.1, **fields}
        return member_bytes(
            train_member(blobs(), model=NET, rule=fields, batch_size=10)
        )

    size = pose(parse_model(NET), "auto", blobs()).network.num_parameters
    plain = needed(rule="sgd")
    assert needed(rule="ngd") - plain == 8 * size * 10 * 3
    assert needed(rule="ngd", fisher="exact") - plain == 8 * size * 10 * 5
    assert needed(rule="ngd", num_samples=4, fisher_batch=5) - plain == 8 * size * 5 * 6


def test_the_rows_of_a_rule_within_a_rule_count():
    class Around(Rule):
        inner: Ngd

    inner = Ngd(lr=0.1, fisher="exact")
    shapes = [(4, 3), (4,)]
    assert inner.scratch(shapes, 10, 3) == 10 * 5 * 16
    assert Around(rule="around", inner=inner).scratch(shapes, 10, 3) == 10 * 5 * 16
