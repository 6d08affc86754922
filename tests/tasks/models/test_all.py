"""Every model is its twin in torch, in value and derivatives."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from curvflow.schemas.checks.model_data_checks import input_form
from curvflow.schemas.models import all_models, parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.numerics import BatchedHessian, sample_losses, stream
from tests.tasks.models.examples import EXAMPLES, Example

MODELS, SAMPLES = 3, 5
EXACT = {"rtol": 1e-12, "atol": 1e-13}
every = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


def normal(*shape, purpose="t"):
    return torch.randn(shape, generator=stream(0, purpose), dtype=torch.float64)


def weights_of(example: Example):
    """Random parameters and statistics of three models, none of them special."""
    net = example.network()
    fans = [math.prod(shape[1:]) for shape in net.layout.shapes]
    scale = torch.cat(
        [
            torch.full((size,), fan**-0.5)
            for size, fan in zip(net.layout.sizes, fans, strict=True)
        ]
    )
    parameters = normal(MODELS, net.num_parameters, purpose="w") * scale
    statistics = normal(MODELS, net.statistics.size, purpose="s").abs() + 0.1
    return net, torch.cat([parameters, statistics], dim=1)


def inputs_of(example: Example, models: int):
    shape = (models, SAMPLES, *example.shape)
    if example.vocabulary is None:
        return normal(*shape, purpose="x")
    return torch.randint(example.vocabulary, shape, generator=stream(0, "x"))


def norms_of(twin):
    return [m for m in twin.modules() if isinstance(m, nn.BatchNorm2d)]


def twin_of(example, net, weights):
    """Return the twin with the weights of one model, (D + S,)."""
    twin = example.twin()
    parameters, statistics = net.split(weights)
    nn.utils.vector_to_parameters(parameters, twin.parameters())
    named = net.statistics.named(statistics[None])
    kept = [
        buffer for n in norms_of(twin) for buffer in (n.running_mean, n.running_var)
    ]
    for buffer, value in zip(kept, named.values(), strict=True):
        buffer.copy_(value[0])
    return twin


def statistics_of(twin):
    kept = [b for n in norms_of(twin) for b in (n.running_mean, n.running_var)]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *kept])


def uniform(shape):
    return torch.rand(MODELS, *shape, dtype=torch.float64)


def gradient_of(outputs, targets, twin):
    loss = (outputs - targets).square().sum()
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, twin.parameters())]
    )


def test_every_model_has_an_example():
    kinds = {example.spec["kind"] for example in EXAMPLES.values()}
    assert kinds == set(all_models()) - {"factory"}


@every
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("in_training", [True, False], ids=["training", "evaluation"])
def test_outputs_gradients_and_statistics_are_those_of_its_twin(
    example, shared, in_training
):
    net, weights = weights_of(example)
    x = inputs_of(example, 1 if shared else MODELS)
    y = normal(MODELS, SAMPLES, *example.out_shape, purpose="y")
    parameters, statistics = net.split(weights)
    parameters = parameters.clone().requires_grad_()
    if in_training:
        actual, after = net.training_outputs(parameters, statistics, x, uniform)
    else:
        actual = net.outputs(torch.cat([parameters, statistics], dim=1), x)
        after = statistics
    (slopes,) = torch.autograd.grad((actual - y).square().sum(), parameters)
    assert actual.shape == (MODELS, SAMPLES, *example.out_shape)
    for model in range(MODELS):
        twin = twin_of(example, net, weights[model]).train(in_training)
        outputs = twin(x[0 if shared else model])
        torch.testing.assert_close(actual[model], outputs, **EXACT)
        torch.testing.assert_close(after[model], statistics_of(twin), **EXACT)
        slope = gradient_of(outputs, y[model], twin)
        torch.testing.assert_close(
            slopes[model], slope, rtol=1e-12, atol=1e-12 * float(slope.abs().max())
        )


def twin_products(example, net, weights, x, y, columns):
    """Return the products of the twin's own Hessian, at evaluation."""
    twin = twin_of(example, net, weights).eval()
    shapes = {name: p.shape for name, p in twin.named_parameters()}

    def loss(vector):
        pieces = vector.split([math.prod(shape) for shape in shapes.values()])
        named = {
            name: piece.reshape(shape)
            for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
        }
        outputs = functional_call(twin, named, (x,))
        return sample_losses("cross_entropy")(outputs[None], y[None]).mean()

    start = net.split(weights)[0]
    if columns.shape[0] == columns.shape[1]:
        # Not torch.func.hessian, which torch 2.13 gets wrong for nn.LayerNorm.
        return torch.func.jacfwd(torch.func.grad(loss))(start) @ columns
    leaf = start.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    products = [
        torch.autograd.grad(slope @ column, leaf, retain_graph=True)[0]
        for column in columns.T
    ]
    return torch.stack(products, dim=1)


@every
def test_products_with_the_hessian_are_those_of_its_twin(example):
    net, weights = weights_of(example)
    x = inputs_of(example, 1)
    y = torch.arange(SAMPLES)[None] % example.outputs
    if example.of_tokens:
        y = y.unsqueeze(2).expand(-1, -1, *example.shape)
    parameters, statistics = net.split(weights)

    def losses(weights, inputs, targets):
        return sample_losses("cross_entropy")(net.outputs(weights, inputs), targets)

    operator = BatchedHessian(losses, parameters, x, y, fixed_MS=statistics)
    # The whole Hessian where it is small and torch's own layers can be batched, else
    # some of its products.
    size = net.num_parameters
    is_whole = size < 300 and example.spec["kind"] not in ("lstm", "gru")
    block = torch.eye(size) if is_whole else normal(size, 2, purpose="v")
    columns = block.double().expand(MODELS, -1, -1)
    actual = operator @ columns
    leaf = parameters.clone().requires_grad_()
    total = losses(torch.cat([leaf, statistics], dim=1), x, y).mean(1).sum()
    (slope,) = torch.autograd.grad(total, leaf, create_graph=True)
    along = columns[:, :, -1]
    (twice,) = torch.autograd.grad((slope * along).sum(), leaf)
    for model in range(MODELS):
        exact = twin_products(example, net, weights[model], x[0], y[0], columns[model])
        near = {"rtol": 0, "atol": 1e-12 * float(exact.abs().max())}
        torch.testing.assert_close(actual[model], exact, **near)
        torch.testing.assert_close(twice[model], exact[:, -1], **near)


@every
def test_products_of_columns_together_by_a_kept_graph_are_the_same(example):
    net, weights = weights_of(example)
    x = inputs_of(example, 1)
    y = normal(1, SAMPLES, *example.out_shape, purpose="y")
    parameters, statistics = net.split(weights)

    def losses(weights, inputs, targets):
        return (net.outputs(weights, inputs) - targets).square().flatten(2).mean(2)

    columns = normal(MODELS, net.num_parameters, 2, purpose="v")
    ahead, kept = (
        BatchedHessian(losses, parameters, x, y, fixed_MS=statistics, order=order)
        @ columns
        for order in ("forward_over_reverse", "retained")
    )
    near = 1e-12 * float(ahead.abs().max())
    torch.testing.assert_close(kept, ahead, rtol=0, atol=near)


@every
def test_products_on_a_batch_in_training_are_those_of_its_twin(example):
    net, weights = weights_of(example)
    x = inputs_of(example, 1)
    y = normal(SAMPLES, *example.out_shape, purpose="y")
    parameters, statistics = net.split(weights)
    leaf = parameters.clone().requires_grad_()
    outputs, _ = net.training_outputs(leaf, statistics, x, uniform)
    loss = (outputs - y).square().flatten(1).mean(1).sum()
    (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (actual,) = torch.autograd.grad((slope * parameters).sum(), leaf)
    for model in range(MODELS):
        twin = twin_of(example, net, weights[model]).train()
        loss = (twin(x[0]) - y).square().mean()
        leaves = list(twin.parameters())
        slopes = torch.autograd.grad(loss, leaves, create_graph=True)
        along = sum((s * p.detach()).sum() for s, p in zip(slopes, leaves, strict=True))
        product = torch.cat([t.flatten() for t in torch.autograd.grad(along, leaves)])
        near = {"rtol": 0, "atol": 1e-11 * float(product.abs().max())}
        torch.testing.assert_close(actual[model], product, **near)


@every
def test_the_numbers_kept_for_a_gradient_are_estimated_fairly(example):
    net, weights = weights_of(example)
    sizes: dict[int, int] = {}

    is_sequence = input_form(parse_model(example.spec)) == "sequence"

    def pack(tensor):
        # Tokens of a sequence are folded with the samples, and so are heads and models.
        folded = is_sequence and any(size % SAMPLES == 0 for size in tensor.shape)
        if SAMPLES in tensor.shape or folded:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes() // 8
            held.append(tensor)
        return tensor

    held: list[torch.Tensor] = []
    x = inputs_of(example, MODELS)
    parameters, statistics = net.split(weights)
    parameters = parameters.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        net.training_outputs(parameters, statistics, x, uniform)
    kept = sum(sizes.values()) / (MODELS * SAMPLES)
    assert 0.25 * net.width <= kept <= 1.0 * net.width


@every
def test_scales_begin_at_one_and_statistics_as_in_torch(example):
    net = example.network()
    drawn = initial_weights(net, stream(0, "init"), None)
    parameters, statistics = net.split(drawn[None])
    named = net.layout.named(parameters)
    for name, tensor in named.items():
        assert (tensor == (1.0 if name.endswith("scale") else 0.0)).all()
    assert torch.equal(statistics[0], statistics_of(example.twin()))


@every
def test_a_model_in_a_batch_is_the_model_alone(example):
    net, weights = weights_of(example)
    x = inputs_of(example, 1)
    together = net.outputs(weights, x)
    for model in range(MODELS):
        alone = net.outputs(weights[model : model + 1], x)
        torch.testing.assert_close(together[model], alone[0], rtol=1e-12, atol=1e-13)
