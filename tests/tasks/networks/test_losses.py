"""Losses of networks, held to those of torch in plain loops over all terms."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, jvp
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset, dataset_of
from curvflow.schemas.losses import OwnLoss
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.losses import network_loss
from curvflow.tasks.networks.problems import forget, load_samples, pose, read
from curvflow.tasks.numerics import fisher_draws, fisher_roots, ggn_roots, stream
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.training.curves import Evaluation
from tests.tasks import toys
from tests.tasks.partials import Steps
from tests.tasks.toys import (
    as_data,
    compute,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

DECODER = {"factory": "tests.tasks.toys:make_decoder", "kwargs": {}}
PLAIN_SGD = {"rule": "sgd", "lr": 0.2}
TRIPLE = {"rule": "sgd", "lr": 0.3, "momentum": 0.9}  # of toys.SGD


def own(name, **settings):
    return {"factory": f"{__name__}:{name}", "kwargs": {}, **settings}


def gaussian(outputs, targets):
    """Negative logarithm of a normal density, of mean and logarithm of variance."""
    mean, log_variance = outputs[:, :1], outputs[:, 1:]
    squares = (targets - mean).square() / log_variance.exp()
    return 0.5 * (log_variance + squares).sum(1)


def scaled(outputs, targets, *, factor=3.0):
    return factor * nn.MSELoss()(outputs, targets)


def branching(outputs, targets):
    """A loss that vmap cannot hold."""
    each = [f.square().sum() if f.sum() > 0 else f.exp().sum() for f in outputs]
    return torch.stack(each)


def make_squares(factors):
    """Return a multiple of squares, by a list that it takes out."""
    factor = factors.pop()
    return lambda outputs, targets: factor * (outputs - targets).square().mean()


def make_pinball(share=0.5):
    def loss(outputs, targets):
        error = targets - outputs
        # Rounded at zero, so that there is a second derivative.
        return (F.softplus(error) - (1 - share) * error).mean(1)

    return loss


def make_number():
    return 3.0


def mixing(outputs, targets):
    return (outputs - outputs.mean(0)).square().mean()


def centred(outputs, targets):
    return (outputs - outputs.mean(0)).square().mean(1)


def overwriting(outputs, targets):
    outputs -= targets
    return outputs.square().mean(1)


class Weighed(nn.Module):
    """Squares times a number that it holds, as a parameter or a buffer."""

    def __init__(self, held="frozen", weight=3.0):
        super().__init__()
        weights = torch.tensor([weight])
        if held == "buffer":
            self.register_buffer("weights", weights)
            self.register_buffer("count", torch.tensor(1))
        else:
            self.weights = nn.Parameter(weights, requires_grad=held == "trained")

    def forward(self, outputs, targets):
        return (self.weights * (outputs - targets).square()).mean(1)


def by_output(outputs, targets):
    return (outputs - targets).square()


def hinged(outputs, targets):
    return F.multi_margin_loss(outputs, targets)


def failing(outputs, targets):
    raise RuntimeError("no such thing")


def agreeing(outputs, targets):
    return outputs.argmax(1) == targets


def detached(outputs, targets):
    return outputs.detach().square().sum(1)


def mixed(outputs, targets, components):
    """The mean of -log of a mixture, of probabilities."""
    chances = outputs[:, :components].softmax(1)
    values = outputs[:, components:].reshape(len(outputs), components, -1).sigmoid()
    y = targets[:, None, :]
    each = (y * values + (1 - y) * (1 - values)).prod(-1)
    return -(chances * each).sum(1).log().mean()


TARGETS = {
    "values": lambda rng, n: rng.normal(size=(n, 2)),
    "value": lambda rng, n: rng.normal(size=(n, 1)),
    "chances": lambda rng, n: rng.random((n, 2)),
    "counts": lambda rng, n: rng.poisson(2.0, (n, 2)).astype(float),
    "binary values": lambda rng, n: rng.integers(0, 2, (n, 2)).astype(float),
    "many binary values": lambda rng, n: rng.integers(0, 2, (n, 5)).astype(float),
    "binary": lambda rng, n: np.arange(n) % 2,
    "labels": lambda rng, n: np.arange(n) % 3,
    "ignored": lambda rng, n: np.where(rng.random(n) < 0.4, -100, np.arange(n) % 3),
}


def data_of(kind, samples=12, seed=0):
    """Return random samples whose targets a loss takes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples + 5, 3))
    y = TARGETS[kind](rng, samples + 5)
    parts = x[5:], y[5:], x[:5], y[:5]
    num_classes = {"labels": 3, "ignored": 3, "binary": 2}.get(kind)
    return as_data(dataset_of(np.float64, num_classes, *parts), f"{kind}{seed}")


CASES = {
    "bce": ("chances", "bce", F.binary_cross_entropy_with_logits),
    "bce of labels": (
        "binary",
        "bce",
        lambda f, y: F.binary_cross_entropy_with_logits(f[:, 0], y.double()),
    ),
    "huber": (
        "values",
        {"kind": "huber", "delta": 0.3},
        lambda f, y: F.huber_loss(f, y, delta=0.3),
    ),
    "bce, summed": (
        "chances",
        {"kind": "bce", "reduction": "sum"},
        lambda f, y: 2 * F.binary_cross_entropy_with_logits(f, y),
    ),
    "poisson": ("counts", "poisson", F.poisson_nll_loss),
    "poisson, summed": (
        "counts",
        {"kind": "poisson", "reduction": "sum"},
        lambda f, y: 2 * F.poisson_nll_loss(f, y),
    ),
    "gaussian": (
        "values",
        "gaussian",
        lambda f, y: F.gaussian_nll_loss(f[:, :2], y, f[:, 2:].exp()),
    ),
    "gaussian, summed": (
        "values",
        {"kind": "gaussian", "reduction": "sum"},
        lambda f, y: 2 * F.gaussian_nll_loss(f[:, :2], y, f[:, 2:].exp()),
    ),
    "mixture": ("binary values", "mixture_bernoulli", lambda f, y: mixed(f, y, 2)),
    "mixture of labels": (
        "binary",
        {"kind": "mixture_bernoulli", "components": 3},
        lambda f, y: mixed(f, y[:, None].double(), 3),
    ),
    "smoothing": (
        "labels",
        {"kind": "cross_entropy", "label_smoothing": 0.2},
        lambda f, y: F.cross_entropy(f, y, label_smoothing=0.2),
    ),
    "class weights": (
        "labels",
        {"kind": "cross_entropy", "class_weights": [1.0, 2.0, 0.5]},
        lambda f, y: F.cross_entropy(f, y, weight=f.new_tensor([1.0, 2.0, 0.5])),
    ),
    "a class without weight": (
        "labels",
        {
            "kind": "cross_entropy",
            "label_smoothing": 0.1,
            "class_weights": [1.0, 0.0, 0.5],
        },
        lambda f, y: F.cross_entropy(
            f, y, label_smoothing=0.1, weight=f.new_tensor([1.0, 0.0, 0.5])
        ),
    ),
    "labels left out": ("ignored", "auto", F.cross_entropy),
    "a class left out": (
        "labels",
        {"kind": "cross_entropy", "ignore_index": 1},
        lambda f, y: F.cross_entropy(f, y, ignore_index=1),
    ),
    "all of them": (
        "ignored",
        {
            "kind": "cross_entropy",
            "label_smoothing": 0.1,
            "class_weights": [0.5, 1.0, 3.0],
        },
        lambda f, y: F.cross_entropy(
            f, y, label_smoothing=0.1, weight=f.new_tensor([0.5, 1.0, 3.0])
        ),
    ),
    "a module of torch": (
        "values",
        {"factory": "torch.nn:HuberLoss", "kwargs": {"delta": 0.3}},
        lambda f, y: F.huber_loss(f, y, delta=0.3),
    ),
    "one number a sample": (
        "value",
        own("gaussian", num_outputs=2),
        lambda f, y: gaussian(f, y).mean(),
    ),
    "a scalar": (
        "values",
        own("scaled", kwargs={"factor": 2.0}),
        lambda f, y: 2 * (f - y).square().mean(),
    ),
    "a frozen parameter": (
        "values",
        own("Weighed"),
        lambda f, y: 3 * (f - y).square().mean(),
    ),
    "a buffer": (
        "values",
        own("Weighed", kwargs={"held": "buffer", "weight": 2.0}),
        lambda f, y: 2 * (f - y).square().mean(),
    ),
    "a maker": (
        "values",
        own("make_pinball", kwargs={"share": 0.9}),
        lambda f, y: make_pinball(0.9)(f, y).mean(),
    ),
}


def reference(problem, data, prefix=""):
    """Return inputs and targets as torch's losses take them."""
    x = torch.as_tensor(data[prefix + "inputs"])
    y = torch.as_tensor(data[prefix + "targets"])
    return x, y.long() if problem.has_labels else y


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_training_and_curvature_are_those_of_the_mean_over_all_terms(case):
    targets, loss, torch_loss = case
    data = data_of(targets)
    (outcome, _) = train_all(
        [
            train_member(
                data,
                loss=loss,
                rule=PLAIN_SGD,
                epochs=3,
                seed=seed,
                checkpoints={"every": 1},
            )
            for seed in (0, 1)
        ]
    )
    problem = read(str(outcome.arrays["network"]))
    x, y = reference(problem, data)

    def mean(weights_D):
        return torch_loss(problem.network.outputs(weights_D[None], x[None])[0], y)

    w, *later = torch.as_tensor(outcome.arrays["weights"])
    for after in later:
        w = w - 0.2 * torch.func.grad(mean)(w)
        torch.testing.assert_close(after, w, rtol=1e-9, atol=1e-11)
    assert outcome.arrays["final_train_loss"] == pytest.approx(mean(w).item())
    x, y = reference(problem, data, "test_")
    assert outcome.arrays["final_test_loss"] == pytest.approx(mean(w).item())

    x, y = reference(problem, data)
    probe = member("probe.trace", {}, weights=weights_of(outcome), data=data)
    exact = torch.autograd.functional.hessian(mean, w)
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-7, atol=1e-9)


def ragged(samples=8, length=4, vocabulary=5, seed=0):
    """Return windows of tokens of which some have no label, of one sample all."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, vocabulary, (2, samples, length))
    y[rng.random(y.shape) < 0.4] = -100
    y[0] = -100
    return as_data(dataset_of(np.float64, vocabulary, x, y, x[:3], y[:3]), "ragged")


@pytest.mark.parametrize("operator", ["hessian", "ggn", "fisher_type2"])
def test_matrices_of_ragged_samples_are_of_the_mean_over_their_tokens(operator):
    data = ragged()
    outcome, _ = train_all(
        [train_member(data, model=DECODER, epochs=2, seed=seed) for seed in (0, 1)]
    )
    weights_D = torch.as_tensor(outcome.arrays["weights"][-1])
    problem = read(str(outcome.arrays["network"]))
    x, labels = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"])
    counted = (labels != -100).flatten()

    def outputs(weights_D):
        return problem.network.outputs(weights_D[None], x[None])[0].flatten(0, 1)

    def mean(weights_D):
        return F.cross_entropy(outputs(weights_D), labels.flatten())

    assert outcome.arrays["final_train_loss"] == pytest.approx(mean(weights_D).item())
    perplexity = outcome.arrays["final_train_perplexity"]
    assert perplexity == pytest.approx(mean(weights_D).exp().item())
    right = (outputs(weights_D).argmax(-1) == labels.flatten())[counted].double().mean()
    assert outcome.arrays["final_train_accuracy"] == pytest.approx(right.item())

    if operator == "hessian":
        exact = torch.autograd.functional.hessian(mean, weights_D)
    else:
        J_TCD = torch.autograd.functional.jacobian(outputs, weights_D)[counted]
        p_TC = outputs(weights_D).softmax(-1)[counted]
        B_TCC = torch.diag_embed(p_TC) - p_TC[:, :, None] * p_TC[:, None, :]
        exact = (J_TCD.mT @ B_TCC @ J_TCD).mean(0)
    probe = member(
        "probe.trace", {"operator": operator}, weights=weights_of(outcome), data=data
    )
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-8, atol=1e-10)


def test_labels_are_drawn_of_the_tokens_that_count():
    data = ragged()
    (outcome,) = train_all([train_member(data, model=DECODER, epochs=2)])
    weights_D = torch.as_tensor(outcome.arrays["weights"][-1])
    problem = read(str(outcome.arrays["network"]))
    x, labels = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"])

    def outputs(weights_D):
        return problem.network.outputs(weights_D[None], x[None])[0].flatten(0, 1)

    shape = (*labels.shape, 3)
    uniform = torch.rand(shape, generator=stream(0, "labels"), dtype=torch.float64)
    drawn = uniform.flatten(0, 1)[None]
    flat = outputs(weights_D)[None], labels.flatten()[None]
    S_TRC = fisher_roots("sampled", "cross_entropy", *flat, drawn)[0]
    J_TCD = torch.autograd.functional.jacobian(outputs, weights_D)
    rows = (S_TRC @ J_TCD)[(labels != -100).flatten()]
    settings = {"operator": "fisher_mc", "mc_samples": 3}
    probe = member("probe.trace", settings, weights=weights_of(outcome), data=data)
    exact = (rows.mT @ rows).mean(0)
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-9, atol=1e-12)


def test_a_part_of_the_data_is_measured_by_its_own_terms():
    data = data_of("ignored", samples=16)
    loss = {"kind": "cross_entropy", "class_weights": [0.5, 1.0, 3.0]}
    spec = find_kind("train").params.model_validate(
        train_member(data, loss=loss).params.model_dump()
    )
    problem = pose(spec.model, spec.loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    part = samples.rows(slice(3, 11))
    w = torch.randn(2, problem.network.num_parameters, dtype=torch.float64)
    loss_M, accuracy_M = Evaluation(problem, part, 3)(w)
    y = torch.as_tensor(data["targets"][3:11]).long()
    outputs_MNC = problem.network.outputs(w, part.inputs)
    for outputs, measured, share in zip(outputs_MNC, loss_M, accuracy_M, strict=True):
        weight = outputs.new_tensor([0.5, 1.0, 3.0])
        assert measured == pytest.approx(F.cross_entropy(outputs, y, weight).item())
        right = (outputs.argmax(1) == y)[y != -100].double().mean()
        assert share == pytest.approx(right.item())


def test_a_loss_that_vmap_cannot_hold_is_computed_for_one_model_after_another():
    data = data_of("values")
    problem = pose(parse_model(toys.TANH_NET), OwnLoss(**own("branching")), data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    w = torch.randn(3, problem.network.num_parameters, dtype=torch.float64)
    losses_MN = problem.losses(w, samples.inputs, samples.targets)
    outputs_MNC = problem.network.outputs(w, samples.inputs)
    for outputs, losses in zip(outputs_MNC, losses_MN, strict=True):
        torch.testing.assert_close(losses, branching(outputs, None))


@pytest.mark.parametrize(
    ("targets", "loss", "message"),
    [
        ("values", own("mixing"), "a mean over samples"),
        ("values", own("centred"), "depend on their own sample alone"),
        ("values", own("overwriting"), r"leave its outputs as they are.* in place\."),
        ("values", own("Weighed", kwargs={"held": "trained"}), "train, got 'weights'"),
        ("values", own("by_output"), r"one number a sample.*\(\d, 2\)"),
        ("labels", own("hinged"), "second derivatives"),
        (
            "values",
            own("failing"),
            r"loss: test_losses.py:\d+: .* RuntimeError: no such",
        ),
        ("labels", own("agreeing"), r"return real numbers, got torch\.bool"),
        ("values", own("detached"), "numbers without one. Leave out detach"),
        ("values", own("missing"), "a function of module"),
        ("values", own("scaled", kwargs={"faktor": 1}), "keyword arguments faktor"),
        ("values", own("make_number"), "return a function"),
        ("labels", "bce", "2 classes for bce, got 3"),
        ("values", "bce", "from 0 to 1"),
        ("values", "poisson", "counts for poisson"),
        ("labels", "huber", "a loss for labels, got huber"),
        ("labels", "gaussian", "a loss for labels, got gaussian"),
        ("labels", "mixture_bernoulli", "2 classes for mixture_bernoulli, got 3"),
        ("values", "mixture_bernoulli", "from 0 to 1 for mixture_bernoulli"),
        (
            "labels",
            {"kind": "cross_entropy", "class_weights": [1.0, 2.0]},
            "each of the 3 classes, got 2",
        ),
        ("values", {"kind": "cross_entropy", "label_smoothing": 0.1}, "for values"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused_in_one_line(targets, loss, message):
    with pytest.raises(InputError, match=message) as refused:
        train_all([train_member(data_of(targets), loss=loss)])
    assert "\n" not in str(refused.value)


def test_labels_of_which_none_counts_are_refused():
    with pytest.raises(InputError, match="labels that count"):
        dataset(np.zeros((4, 2)), np.full(4, -100))
    data = data_of("labels")
    loss = {"kind": "cross_entropy", "ignore_index": 7}
    train_all([train_member(data, loss=loss)])
    alone = as_data(dataset_of(np.float64, 2, np.zeros((4, 2)), np.ones(4, int)))
    for settings in ({"ignore_index": 1}, {"class_weights": [1.0, 0.0]}):
        with pytest.raises(InputError, match="labels that count"):
            train_all([train_member(alone, loss={"kind": "cross_entropy", **settings})])


@pytest.mark.parametrize(("part", "share"), [("training", 0.75), ("validation", 0.25)])
def test_a_part_of_which_no_label_counts_is_refused(part, share):
    data = as_data(
        dataset_of(np.float64, 2, np.eye(4), np.array([-100, 1, -100, -100]))
    )
    rule = {"rule": "gadam_auto", "lr": 0.1, "patience": 1}
    fates = set()
    for seed in range(8):  # the label that counts falls to one part or the other
        fit = train_member(
            data, rule=rule, seed=seed, epochs=1, validation_fraction=share
        )
        try:
            train_all([fit])
        except InputError as error:
            fates.add(str(error).partition(" for seed")[0])
    told = "validation_fraction: expected a {} set with a label that counts, got none"
    assert told.format(part) in fates


def test_a_test_set_of_which_no_label_counts_is_recorded():
    x, y = np.zeros((6, 2)), np.array([0, 1, -100, 0, 1, 0])
    data = as_data(dataset_of(np.float64, 2, x, y, x[:2], np.full(2, -100)))
    steps = Steps()
    (outcome,) = find("train").compute([train_member(data)], Machine(partial=steps))
    assert outcome.status == "ok"
    assert np.isnan(outcome.arrays["final_test_loss"])
    assert steps.told == ["no label of the test data counts: test_loss is NaN"]


@pytest.mark.parametrize("operator", ["fisher_mc", "fisher_type2"])
def test_a_fisher_matrix_of_a_loss_that_is_no_likelihood_is_refused(operator):
    data = data_of("values")
    (outcome,) = train_all([train_member(data, loss=own("scaled"))])
    probe = member(
        "probe.trace", {"operator": operator}, weights=weights_of(outcome), data=data
    )
    with pytest.raises(InputError, match="likelihood"):
        compute("probe.trace", [probe])


def middle_of(operator, loss, outputs, targets):
    """Return the matrix B of each sample, (N, C, C), written down."""
    size = outputs.shape[1]
    match loss:
        case "bce":
            s = outputs.sigmoid()
            return torch.diag_embed(s * (1 - s)) / size
        case "poisson":
            return torch.diag_embed(outputs.exp()) / size
    means, logs = outputs.chunk(2, 1)
    sharp, e = (-logs).exp(), means - targets
    if operator == "fisher_type2":
        e = torch.zeros_like(e)
        by_logs = torch.full_like(logs, 0.5)
    else:
        by_logs = 0.5 * sharp * e.square()
    cross = torch.diag_embed(-sharp * e)
    upper = torch.cat([torch.diag_embed(sharp), cross], 2)
    lower = torch.cat([cross, torch.diag_embed(by_logs)], 2)
    return torch.cat([upper, lower], 1) / (size // 2)


@pytest.fixture(scope="module")
def fitted():
    """A network of each loss with its data."""
    found = {}
    for loss, kind in (
        ("bce", "chances"),
        ("poisson", "counts"),
        ("gaussian", "values"),
        ("mixture_bernoulli", "binary values"),
        ("auto", "ignored"),
    ):
        data = data_of(kind, samples=6)
        (outcome,) = train_all([train_member(data, loss=loss, epochs=3)])
        found[loss] = (data, weights_of(outcome), read(str(outcome.arrays["network"])))
    return found


def of_problem(fitted, loss):
    data, weights, problem = fitted[loss]
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    w = torch.as_tensor(weights["weights"])

    def outputs(w):
        return problem.network.outputs(w[None], samples.inputs)[0]

    J_NCD = torch.autograd.functional.jacobian(outputs, w)
    return outputs(w), J_NCD, samples.targets


@pytest.mark.parametrize("operator", ["ggn", "fisher_type2"])
@pytest.mark.parametrize("loss", ["bce", "poisson", "gaussian"])
def test_matrices_of_a_law_are_their_dense_twins(fitted, loss, operator):
    outputs, J_NCD, targets = of_problem(fitted, loss)
    B_NCC = middle_of(operator, loss, outputs, targets[0])
    exact = (J_NCD.mT @ B_NCC @ J_NCD).mean(0)
    data, weights, _ = fitted[loss]
    probe = member("probe.trace", {"operator": operator}, weights=weights, data=data)
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "loss", ["bce", "poisson", "gaussian", "mixture_bernoulli", "auto"]
)
def test_a_sampled_matrix_is_of_the_labels_drawn(fitted, loss):
    outputs, J_NCD, targets = of_problem(fitted, loss)
    law = fitted[loss][2].criterion.law
    shape = (6, *fisher_draws(law, outputs.shape[1], 5))
    uniform = torch.rand(shape, generator=stream(7, "labels"), dtype=torch.float64)
    rows = fisher_roots("sampled", law, outputs[None], targets, uniform[None])[0]
    assert rows.abs().max() > 0.01
    settings = {"operator": "fisher_mc", "mc_samples": 5, "seed": 7}
    data, weights, _ = fitted[loss]
    probe = member("probe.trace", settings, weights=weights, data=data)
    each = rows @ J_NCD
    exact = (each.mT @ each).mean(0)
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-10, atol=1e-12)


def test_arguments_that_a_loss_changes_are_given_anew():
    spec = OwnLoss(**own("make_squares", kwargs={"factors": [2.0, 3.0]}))
    problem = pose(parse_model(toys.TANH_NET), spec, data_of("values", samples=4))
    outputs, targets = torch.ones(1, 4, problem.num_outputs), torch.zeros(1, 4, 1)
    for _ in range(2):
        assert problem.criterion.of_samples(outputs, targets).tolist() == [[3.0] * 4]
        forget()


def test_roots_of_a_loss_of_ones_own_are_taken_or_refused_by_its_name():
    def posed(kind, name, **settings):
        data = data_of(kind, samples=4)
        spec = OwnLoss(**own(name, **settings))
        problem = pose(parse_model(toys.TANH_NET), spec, data)
        samples = load_samples(problem, [data], "", "cpu", torch.float64)
        w = torch.randn(2, problem.network.num_parameters, dtype=torch.float64)
        return problem, problem.network.outputs(w, samples.inputs), samples.targets

    problem, outputs, targets = posed("values", "branching")
    S = ggn_roots(problem.criterion.of_samples, outputs, targets)
    exact = torch.where(outputs.sum(-1)[..., None] > 0, 2.0, outputs.exp())
    torch.testing.assert_close(S.mT @ S, torch.diag_embed(exact))
    problem, outputs, targets = posed("value", "gaussian", num_outputs=2)
    with pytest.raises(InputError, match="for test_losses:gaussian, got -"):
        ggn_roots(
            problem.criterion.of_samples, outputs, targets, loss="test_losses:gaussian"
        )


def test_natural_gradients_take_a_law_and_refuse_what_has_none(fitted):
    data = data_of("chances", samples=6)
    rule = {"rule": "ngd", "lr": 0.1, "fisher": "exact"}
    for loss in ("bce", {"kind": "bce", "reduction": "sum"}):
        (outcome,) = train_all([train_member(data, loss=loss, rule=rule, epochs=20)])
        losses = outcome.arrays["train_loss"]
        assert losses[-1] < losses[0]
    with pytest.raises(InputError, match="loss that is no likelihood"):
        train_all([train_member(data, loss="huber", rule=rule)])


def test_the_exact_matrix_of_a_mixture_of_many_values_is_refused_by_name():
    data = data_of("many binary values")
    (outcome,) = train_all([train_member(data, loss="mixture_bernoulli", epochs=1)])
    settings = {"operator": "fisher_type2"}
    probe = member("probe.trace", settings, weights=weights_of(outcome), data=data)
    with pytest.raises(InputError, match="mixture_bernoulli, 12, got 5 values"):
        compute("probe.trace", [probe])


def test_what_laws_predict_is_compared_with_the_targets():
    parts = data_of("binary values", samples=30).arrays
    x, y = parts["inputs"], (parts["inputs"][:, :2] > 0).astype(float)
    data = as_data(dataset_of(np.float64, None, x, y, x[:4], y[:4]), "signs")
    rule = {"rule": "adam", "lr": 0.1}
    (outcome,) = train_all(
        [train_member(data, loss="mixture_bernoulli", rule=rule, epochs=60)]
    )
    assert outcome.arrays["final_train_accuracy"] == 1
    one_hot = np.stack([y[:, 0], 1 - y[:, 0]], 1)
    data = as_data(dataset_of(np.float64, 2, x, one_hot, x[:4], one_hot[:4]), "means")
    (outcome,) = train_all([train_member(data, loss="gaussian", rule=rule, epochs=60)])
    assert outcome.arrays["final_train_accuracy"] == 1


def test_chains_take_a_loss_of_ones_own():
    data = data_of("values")
    (outcome,) = train_all([train_member(data, loss=own("scaled"), epochs=50)])
    (twin,) = train_all([train_member(data, loss="mse", rule=TRIPLE, epochs=50)])
    settings = {
        "num_chains": 2,
        "num_draws": 20,
        "num_burnin_steps": 10,
        "lr": 1e-4,
        "localization": 1.0,
        "calibrate": "none",
        "sampling_method": "sgld",
    }
    results = [
        compute(
            "probe.llc",
            [
                member(
                    "probe.llc",
                    {**settings, "nbeta": nbeta},
                    weights=weights_of(trained),
                    data=data,
                )
            ],
        )[0].arrays["llc_mean"]
        for trained, nbeta in ((outcome, 10.0), (twin, 30.0))
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-6)


def test_settings_at_their_defaults_are_the_name_alone():
    data = data_of("values")
    for kind in ("huber", "bce", "poisson", "gaussian", "mixture_bernoulli"):
        params = train_member(data, loss={"kind": kind}).params
        assert params.loss == kind
        assert train_member(data, loss=kind).params == params


def weighted(outputs, targets):
    """The mean of torch over weights by class, which mixes the samples of a batch."""
    return F.cross_entropy(outputs, targets, weight=outputs.new_tensor([1.0, 5.0, 2.0]))


def one_logit(outputs, targets):
    return F.softplus(-(2 * targets - 1) * outputs[:, 0])


def test_a_loss_that_mixes_samples_is_refused_though_the_first_are_alike():
    data = data_of("labels")
    order = np.argsort(data["targets"], kind="stable")
    arrays = {**data.arrays, "targets": data["targets"][order]}
    with pytest.raises(InputError, match="a mean over samples"):
        train_all([train_member(as_data(arrays, "sorted"), loss=own("weighted"))])


def test_outputs_that_are_no_classes_have_no_accuracy():
    data = data_of("binary")
    loss = own("one_logit", num_outputs=1)
    (outcome,) = train_all([train_member(data, loss=loss)])
    assert np.isnan(outcome.arrays["final_train_accuracy"])


def test_a_module_of_torch_may_hold_weights():
    settings = {"kwargs": {"reduction": "none"}, "factory": "torch.nn:MSELoss"}
    assert train_all([train_member(data_of("value"), loss=settings | {"kwargs": {}})])
    with pytest.raises(InputError, match="one number a sample"):
        train_all([train_member(data_of("values"), loss=settings)])


@pytest.mark.parametrize("loss", ["auto", {"kind": "cross_entropy", "ignore_index": 0}])
def test_labels_that_do_not_count_where_all_did_are_refused_or_left_out(loss):
    whole, ignored = data_of("labels"), data_of("ignored")
    (outcome,) = train_all([train_member(whole, loss=loss)])
    probe = member("probe.trace", {}, weights=weights_of(outcome), data=ignored)
    if loss == "auto":
        with pytest.raises(InputError, match=r"labels from 0 to 2.*got -100"):
            compute("probe.trace", [probe])
    else:
        assert np.isfinite(compute("probe.trace", [probe])[0].arrays["trace"])


def test_chains_keep_losses_of_samples_of_any_loss():
    data = data_of("values")
    (outcome,) = train_all([train_member(data, loss="huber", epochs=20)])
    settings = {
        "num_chains": 2,
        "num_draws": 8,
        "num_burnin_steps": 2,
        "lr": 1e-4,
        "localization": 1.0,
        "calibrate": "none",
        "sampling_method": "sgld",
        "keep_losses": "samples",
    }
    probe = member("probe.llc", settings, weights=weights_of(outcome), data=data)
    kept = compute("probe.llc", [probe])[0].arrays["observed_losses"]
    assert kept.shape == (2, 8, len(data["inputs"]))
    assert np.isfinite(kept).all()


def test_smoothed_labels_have_no_perplexity():
    loss = {"kind": "cross_entropy", "label_smoothing": 0.1}
    (outcome,) = train_all([train_member(ragged(), model=DECODER, loss=loss, epochs=1)])
    assert "train_perplexity" not in outcome.arrays


@pytest.mark.parametrize("held", ["frozen", "buffer"])
def test_what_a_loss_holds_may_be_of_another_precision_within_a_derivative(held):
    """Torch (2.13) ends with a fault of memory where a parameter is moved there."""
    text = json.dumps(own("Weighed", kwargs={"held": held}))
    loss = network_loss(text, has_labels=False).of_samples
    outputs, targets = torch.randn(2, 1, 5, 2, dtype=torch.float64)

    def total(outputs):
        return loss(outputs, targets).sum()

    _, along = jvp(grad(total), (outputs,), (torch.ones_like(outputs),))
    torch.testing.assert_close(along, torch.full_like(outputs, 3.0))
