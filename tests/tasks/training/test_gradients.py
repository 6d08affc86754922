"""The gradient of the batch loss, and the product of its Hessian with the weights."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.modules import StackedModule
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import dense_hessian, stream
from curvflow.tasks.training.gradients import Gradients, Leaves, Noise, gradients
from tests.tasks.toys import (
    TANH_NET,
    as_data,
    blobs,
    make_transformer,
    train_all,
    train_member,
    waves,
)

RELU = {"kind": "mlp", "hidden": [5, 4], "bias": False}
DEPTH = 3


def derived(data, model, loss="auto", models=3, without=0):
    """Derive the loss over all data at random weights."""
    problem = pose(parse_model(model), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    size = problem.network.num_parameters
    drawn = torch.randn(models, size, generator=stream(0, "t"), dtype=torch.float64)
    noise = Noise(range(models), 0, "dropout", drawn)
    result = gradients(problem, drawn, drawn[:, :0], samples, noise, without=without)
    return problem, samples, drawn, result


def outputs_and_jacobian(problem, samples, weights):
    def outputs(weights_D):
        return problem.network.outputs(weights_D.unsqueeze(0), samples.inputs)[0]

    jacobian = torch.autograd.functional.jacobian(outputs, weights)
    return outputs(weights), jacobian


@pytest.mark.parametrize(
    ("data", "loss", "scale"),
    [(blobs(), "auto", 1), (waves(), "mse", 1), (waves(), "sse", 20)],
    ids=["cross_entropy", "mse", "sse"],
)
def test_the_product_is_that_of_the_dense_hessian(data, loss, scale):
    problem, samples, weights, result = derived(data, TANH_NET, loss)
    for model, product in enumerate(result.product):
        hessian = scale * dense_hessian(
            problem.losses, weights[model], samples.inputs[0], samples.targets[0]
        )
        expected = hessian @ weights[model]
        error = (product - expected).norm() / expected.norm()
        assert error < 1e-12


def test_only_the_last_models_have_a_product():
    whole = derived(blobs(), TANH_NET, models=5)[3]
    part = derived(blobs(), TANH_NET, models=5, without=3)[3]
    torch.testing.assert_close(part.product, whole.product[3:], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(part.gradient, whole.gradient, rtol=1e-12, atol=1e-14)
    assert torch.equal(part.product_of(slice(4, 5)), part.product[1:])
    assert torch.equal(part.product_of(torch.tensor([4, 3])), part.product.flip(0))


def test_of_a_squared_error_the_product_follows_from_outputs_of_a_homogeneous_net():
    # f(c w) = c^d f(w) gives J w = d f and (d^2 f) w = (d - 1) J'.
    rng = np.random.default_rng(1)
    data = as_data(dataset(rng.normal(size=(9, 3)), rng.normal(size=(9, 2))))
    problem, samples, weights, result = derived(data, RELU, "sse")
    for model, product in enumerate(result.product):
        f, jacobian = outputs_and_jacobian(problem, samples, weights[model])
        inner = DEPTH * f + (DEPTH - 1) * (f - samples.targets[0])
        expected = 2 * torch.einsum("ncd,nc->d", jacobian, inner)
        torch.testing.assert_close(product, expected, rtol=1e-12, atol=1e-12)


def test_of_a_cross_entropy_the_product_follows_from_outputs_of_a_homogeneous_net():
    problem, samples, weights, result = derived(blobs(), RELU)
    for model, product in enumerate(result.product):
        f, jacobian = outputs_and_jacobian(problem, samples, weights[model])
        p = f.softmax(1)
        spread = p * f - p * (p * f).sum(1, keepdim=True)
        wrong = p - torch.nn.functional.one_hot(samples.targets[0], p.shape[1])
        inner = (DEPTH * spread + (DEPTH - 1) * wrong) / len(f)
        expected = torch.einsum("ncd,nc->d", jacobian, inner)
        torch.testing.assert_close(product, expected, rtol=1e-12, atol=1e-12)


def test_of_a_homogeneous_net_all_layers_share_one_sum_of_weight_times_gradient():
    problem, _, weights, result = derived(blobs(), RELU)
    shares = problem.network.layout.unflatten(weights * result.gradient)
    sums = torch.stack([share.flatten(1).sum(1) for share in shares])
    assert len(sums) == DEPTH
    torch.testing.assert_close(sums, sums[:1].expand_as(sums), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "models", [slice(2, 4), slice(3, 4), slice(4, 5), torch.tensor([2, 4])]
)
def test_products_are_chosen_by_the_numbers_of_all_models(models):
    all_M = torch.arange(5.0)
    result = Gradients(all_M, all_M, all_M, all_M[2:])
    assert torch.equal(result.product_of(models), all_M[models])


MADE = ["tied", "half_frozen_norm", "frozen", "random", "ageing", "transformer"]


def labelled_tokens():
    ids = np.random.default_rng(0).integers(0, 7, (6, 6))
    return as_data(dataset(ids[:, :-1], ids[:, 1:]), "tokens")


@pytest.mark.parametrize(
    ("made", "data"),
    [*((made, blobs(num_test=0)) for made in MADE), ("embedding", labelled_tokens())],
    ids=[*MADE, "embedding"],
)
def test_a_module_alone_has_the_bits_of_a_vector_of_its_parameters(made, data):
    factory = {"factory": f"tests.tasks.toys:make_{made}", "kwargs": {}}
    problem = pose(parse_model(factory), "auto", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float32)
    weights = torch.randn(1, problem.network.num_parameters, generator=stream(0, "t"))
    statistics = problem.network.first_statistics().float().unsqueeze(0)
    noise = Noise([0], 0, "dropout", weights)
    found = []
    for takes_leaves in (True, False):
        network = replace(problem.network, takes_leaves=takes_leaves)
        posed = replace(problem, network=network)
        found.append(gradients(posed, weights, statistics, samples, noise, without=1))
    by_tensor, by_vector = found
    for name in ("losses", "gradient", "statistics"):
        assert torch.equal(getattr(by_tensor, name), getattr(by_vector, name)), name
    assert by_tensor.gradient.abs().max() > 0


class Calls(TorchDispatchMode):
    """Counts of torch's functions, but for those that return views alone."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and func.namespace == "aten":
            self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def calls_of_a_step(train):
    """Return the calls of one step, from epochs of three and of six."""
    counts = []
    for size in (10, 5):
        with Calls() as calls:
            train(size)
        counts.append(calls.counts)
    few, many = counts
    many.subtract(few)
    return Counter({name: count / 3 for name, count in many.items() if count})


def test_a_step_of_a_module_alone_computes_what_a_plain_loop_does_but_for_its_sums():
    model = {"factory": "tests.tasks.toys:make_transformer", "kwargs": {}}
    rule = {"rule": "sgd", "lr": 0.1}
    module, data = make_transformer().double(), blobs()
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    updates = torch.optim.SGD(module.parameters(), lr=0.1)

    def stage(size):
        node = train_member(data, model=model, rule=rule, epochs=1, batch_size=size)
        train_all([node])

    def loop(size):
        for rows in torch.randperm(len(x)).split(size):
            updates.zero_grad()
            functional.cross_entropy(module(x[rows]), y[rows]).backward()
            updates.step()

    for size in (10, 5):  # the first has a trial, and slopes of its means
        stage(size)
    here, there = calls_of_a_step(stage), calls_of_a_step(loop)
    # The update and the start of the derivative are other functions.
    assert there - here == {"add_": len(list(module.parameters())), "ones_like": 1}
    # The loss, the sum of an epoch's losses; the leaves, the gradient, the update.
    more = {"mean": 1, "mul": 1, "add": 1}
    leaves = {"is_set_to": len(list(module.parameters())), "copy_": 2}
    assert here - there == {**more, **leaves, "cat": 1, "addcmul": 1}


def two_gradients(made, leaves):
    """Return gradients of a module alone at two places, one after the other."""
    data = blobs(num_test=0)
    factory = {"factory": f"tests.tasks.toys:make_{made}", "kwargs": {}}
    problem = pose(parse_model(factory), "auto", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    size, found = problem.network.num_parameters, []
    drawn = torch.randn(2, 1, size, generator=stream(0, "t"), dtype=torch.float64)
    kept = Leaves(problem.network.layout, drawn[0]) if leaves else None
    for weights in drawn:
        noise = Noise([0], 0, "dropout", weights)
        passed = problem, weights, weights[:, :0], samples, noise
        found.append(gradients(*passed, without=1, leaves=kept).gradient)
    return torch.cat(found)


@pytest.fixture
def untried(monkeypatch):
    """Let modules do what they are refused for, as if they did it in later calls."""
    monkeypatch.setattr(StackedModule, "check_calls", lambda module, inputs, made: None)


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    "made", ["transformer", "tied", "hooked", "replacing", "marking", "backward"]
)
def test_leaves_that_stay_have_the_bits_of_new_ones(made):
    assert torch.equal(two_gradients(made, True), two_gradients(made, False))


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("models", [1, 2])
def test_what_a_module_writes_to_its_weights_stays_there(models):
    model = {"factory": "tests.tasks.toys:make_clamping", "kwargs": {}}
    drawn = torch.randn(models, 12, generator=stream(0, "t"), dtype=torch.float64)
    weights = derived(blobs(), model, models=models, without=models)[2]
    assert torch.equal(weights[:, :9], drawn[:, :9].clamp(-0.5, 0.5))
    assert torch.equal(weights[:, 9:], drawn[:, 9:])
