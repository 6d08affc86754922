"""Laws of initial weights: moments, pairing, and the norms they give known networks."""

import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

WIDE = {"kind": "mlp", "hidden": [300, 200]}
CONV = {"kind": "vgg", "stages": [[64, 96]]}


def law(**init):
    return parse_model({"kind": "linear", "init": init}).init


def drawn(spec, shape, init, *, outputs=10, seed=0):
    net = build(spec, shape, outputs)
    return net, initial_weights(net, stream(seed, "init"), init)


def tensors_of(spec, shape, init, **settings):
    net, weights = drawn(spec, shape, init, **settings)
    parameters = net.split(weights[None])[0]
    return {name: t[0] for name, t in net.layout.named(parameters).items()}


def moments(tensor):
    return tensor.mean().item(), tensor.var(unbiased=False).item()


def kurtosis(tensor):
    centred = tensor - tensor.mean()
    return ((centred**4).mean() / (centred**2).mean() ** 2).item()


# Variance of a weight and of a bias of the layer from 300 to 200 units.
LAWS = [
    (law(normal=0.3), 0.09, 0.09, 3.0),
    (law(normal=0.3, bias=0.0), 0.09, 0.0, 3.0),
    (law(normal=0.3, bias=2.0), 0.09, 4.0, 3.0),
    (law(uniform=0.5), 0.25 / 3, 0.25 / 3, 1.8),
    (law(glorot=2.0), 4 * 2 / 500, 0.0, 1.8),
    (law(variance_scaling=0.2), 0.2 / 250, 0.0, 2.37),
    (law(variance_scaling=0.2, fan="in", bias=0.01), 0.2 / 300, 1e-4, 2.37),
    (law(fan_in=2.0), 2 / 300, 0.0, 3.0),
]


@pytest.mark.parametrize(
    ("init", "weight", "bias", "fourth"), LAWS, ids=[str(law_[0]) for law_ in LAWS]
)
def test_weights_and_biases_have_the_moments_of_their_law(init, weight, bias, fourth):
    tensors = tensors_of(WIDE, (40,), init)
    mean, variance = moments(tensors["layer2.weight"])
    assert abs(mean) < 5 * (weight / 60_000) ** 0.5
    assert variance == pytest.approx(weight, rel=0.03)
    assert kurtosis(tensors["layer2.weight"]) == pytest.approx(fourth, rel=0.03)
    if bias == 0:
        assert (tensors["layer2.bias"] == 0).all()
    else:
        assert moments(tensors["layer2.bias"])[1] == pytest.approx(bias, rel=0.4)


def test_the_positive_law_has_no_negative_weight_and_a_mean():
    weights = drawn(WIDE, (40,), law(uniform_positive=0.6))[1]
    assert 0 <= weights.min() < weights.max() <= 0.6
    mean, variance = moments(weights)
    assert mean == pytest.approx(0.3, rel=0.01)
    assert variance == pytest.approx(0.6**2 / 12, rel=0.02)


def test_a_cut_law_stays_within_two_deviations_before_its_correction():
    weight = tensors_of(WIDE, (40,), law(variance_scaling=1.0))["layer2.weight"]
    bound = 2 / 0.8796256610342398 * (1 / 250) ** 0.5
    assert 0.98 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize(
    ("init", "fan"),
    [
        (law(glorot=1.0), (64 + 96) * 9 / 2),
        (law(variance_scaling=1.0), (64 + 96) * 9 / 2),
        (law(variance_scaling=1.0, fan="in"), 64 * 9),
        (law(fan_in=1.0), 64 * 9),
    ],
)
def test_a_kernel_counts_all_its_places(init, fan):
    kernel = tensors_of(CONV, (3, 2, 2), init)["conv2.weight"]
    assert moments(kernel)[1] == pytest.approx(1 / fan, rel=0.03)


@pytest.mark.parametrize(
    ("small", "large", "ratio"),
    [
        (law(normal=0.1), law(normal=2.0), 20),
        (law(normal=0.1, bias=0.3), law(normal=0.2, bias=0.6), 2),
        (law(uniform=0.1), law(uniform=0.4), 4),
        (law(uniform_positive=0.1), law(uniform_positive=0.4), 4),
        (law(glorot=1.0), law(glorot=3.0), 3),
        (law(variance_scaling=0.2), law(variance_scaling=5.0), 5),
        (law(fan_in=1.0), law(fan_in=2.0), 2**0.5),
    ],
    ids=str,
)
def test_laws_that_differ_in_scale_alone_are_paired(small, large, ratio):
    narrow, other = (drawn(WIDE, (40,), init)[1] for init in (small, large))
    torch.testing.assert_close(other, ratio * narrow, rtol=1e-12, atol=0)


@pytest.mark.parametrize("init", [law_[0] for law_ in LAWS], ids=str)
def test_a_draw_follows_the_seed_alone(init):
    first, again, other = (drawn(WIDE, (9,), init, seed=s)[1] for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("init", [law_[0] for law_ in LAWS], ids=str)
def test_scales_and_shifts_of_a_normalisation_are_not_drawn(init):
    spec = {**CONV, "batch_norm": True}
    tensors = tensors_of(spec, (3, 2, 2), init)
    assert (tensors["norm2.scale"] == 1).all()
    assert (tensors["norm2.shift"] == 0).all()
    plain = tensors_of(CONV, (3, 2, 2), init)
    assert plain["conv1.weight"].std() == pytest.approx(
        tensors["conv1.weight"].std().item(), rel=0.1
    )


def sum_of_norms(spec, shape, init, outputs):
    sums = []
    for seed in range(10):
        net, weights = drawn(spec, shape, init, outputs=outputs, seed=seed)
        sums.append(net.layout.norms(net.split(weights[None])[0]).sum())
    return torch.stack(sums)


MNIST = {"kind": "mlp", "hidden": [1024, 1024]}
SINUSOID = {"kind": "mlp", "hidden": [128, 56], "linear_layers": [2]}

# The sums of norms that the regularisation study began from, and their spread.
KNOWN = [
    ("mnist-small", MNIST, 784, 10, 0.1, 208.84, 0.15),
    ("mnist-large", MNIST, 784, 10, 2.0, 4176.7, 3.0),
    ("synthetic-tanh-small", SINUSOID, 256, 1, 0.05, 14.64, 0.10),
    ("synthetic-tanh-large", SINUSOID, 256, 1, 0.5, 146.38, 0.6),
    ("synthetic-relu-small", SINUSOID, 256, 1, 0.02, 5.86, 0.03),
    ("synthetic-relu-large", SINUSOID, 256, 1, 0.2, 58.55, 0.3),
]


@pytest.mark.parametrize(
    ("spec", "inputs", "outputs", "scale", "expected", "spread"),
    [case[1:] for case in KNOWN],
    ids=[case[0] for case in KNOWN],
)
def test_sums_of_norms_are_those_of_the_study(
    spec, inputs, outputs, scale, expected, spread
):
    sums = sum_of_norms(spec, (inputs,), law(normal=scale), outputs)
    assert sums.mean().item() == pytest.approx(expected, abs=3 * spread / 10**0.5)
    assert sums.std() < 2 * spread


def test_the_weights_of_the_small_exclusive_or_network_have_the_norm_of_the_study():
    spec = {"kind": "mlp", "hidden": [12], "activation": "tanh"}
    norms = []
    for seed in range(40):
        tensors = tensors_of(spec, (2,), law(normal=0.03), outputs=1, seed=seed)
        norms.append(sum(tensors[f"layer{n}.weight"].norm() for n in (1, 2)))
    assert torch.stack(norms).mean().item() == pytest.approx(0.24, abs=0.01)


@pytest.mark.parametrize(("scale", "expected"), [(0.2, 31.2), (5.0, 156.0)])
def test_sums_of_norms_of_the_image_network_are_those_of_the_study(scale, expected):
    init = law(variance_scaling=scale)
    net, weights = drawn({"kind": "cnn_cifar"}, (3, 32, 32), init)
    result = net.layout.norms(weights[None]).sum().item()
    assert result == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize("factor", [1.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_unbalancing_leaves_the_function_of_a_relu_network_as_it_was(factor, seed):
    spec = {"kind": "mlp", "hidden": [20, 15]}
    net, balanced = drawn(spec, (6,), law(fan_in=2.0), seed=seed)
    init = law(fan_in=2.0, unbalanced=factor)
    _, unbalanced = drawn(spec, (6,), init, seed=seed)
    x = torch.randn(1, 9, 6, generator=stream(0, "x"), dtype=torch.float64)
    expected = net.outputs(balanced[None], x)
    scale = float(expected.abs().max())
    torch.testing.assert_close(
        net.outputs(unbalanced[None], x), expected, rtol=1e-10, atol=1e-10 * scale
    )
    torch.testing.assert_close(
        net.path_sums(unbalanced[None].square(), (6,), 2.0),
        net.path_sums(balanced[None].square(), (6,), 2.0),
        rtol=1e-10,
        atol=0,
    )
    units = unbalanced[: 20 * 6].reshape(20, 6).norm(dim=1)
    assert units.max() / units.min() > 10


def test_unbalancing_rescales_biases_with_their_units():
    spec = {"kind": "mlp", "hidden": [20]}
    plain = tensors_of(spec, (6,), law(fan_in=2.0))
    scaled = tensors_of(spec, (6,), law(fan_in=2.0, unbalanced=10.0))
    ratio = (scaled["layer1.weight"] / plain["layer1.weight"])[:, 0]
    untouched = (ratio == 1).sum().item()
    # A unit is never drawn with a probability of (1 - 1/20)^20.
    assert untouched == pytest.approx(20 * 0.95**20, abs=6)
    torch.testing.assert_close(
        scaled["layer2.weight"] * ratio, plain["layer2.weight"], rtol=1e-12, atol=0
    )
