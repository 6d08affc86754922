"""Norms over paths and units, against sums over every path by itself."""

import itertools
import math

import pytest
import torch

from curvflow.tasks.numerics import balanced, dense_gammas, group_norm, path_norm

WIDTHS = (3, 4, 2, 3)
POWERS = (1.0, 2.0, 3.0)


def layers(seed=0, widths=WIDTHS, models=2):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(models, *shape, generator=generator, dtype=torch.float64)

    weights = [normal(o, i) for i, o in itertools.pairwise(widths)]
    return weights, [normal(o) for o in widths[1:]]


def every_path(weights, biases):
    """Yield each path of one model as its parameters' places and values."""
    depth = len(weights)
    for start in range(depth + 1):
        sizes = [weights[0].shape[1], *(len(w) for w in weights)][start:]
        for units in itertools.product(*(range(size) for size in sizes)):
            path = {}
            if start > 0:
                if biases is None:
                    continue
                path["bias", start - 1, units[0]] = biases[start - 1][units[0]]
            for layer, (before, after) in enumerate(itertools.pairwise(units), start):
                path["weight", layer, after, before] = weights[layer][after, before]
            yield path


def product(path, without=None):
    return math.prod(abs(float(v)) for place, v in path.items() if place != without)


def rescaled(weights, biases, generator, reach=3.0):
    """Scale what leads into every hidden unit, and undo it in what leads out."""
    weights, biases = list(weights), list(biases)
    for layer in range(len(weights) - 1):
        drawn = torch.rand(weights[layer].shape[:2], generator=generator).double()
        scale = 10 ** (reach * (2 * drawn - 1))
        weights[layer] = weights[layer] * scale[:, :, None]
        biases[layer] = biases[layer] * scale
        weights[layer + 1] = weights[layer + 1] / scale[:, None]
    return weights, biases


def one_model(tensors, model):
    return None if tensors is None else [tensor[model] for tensor in tensors]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("has_biases", [False, True])
def test_the_path_norm_is_that_of_all_paths(p, has_biases):
    weights, biases = layers(widths=(2, 3, 2, 3, 2))
    biases = biases if has_biases else None
    result = path_norm(weights, biases, p)
    for model in range(2):
        paths = every_path(one_model(weights, model), one_model(biases, model))
        expected = sum(product(path) ** p for path in paths) ** (1 / p)
        assert result[model].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("has_biases", [False, True])
def test_gammas_are_sums_over_the_paths_through_each_parameter(p, has_biases):
    weights, biases = layers()
    biases = biases if has_biases else None
    found_weights, found_biases = dense_gammas(weights, biases, p)
    assert len(found_biases) == (len(weights) if has_biases else 0)
    for model in range(2):
        sums = {}
        for path in every_path(one_model(weights, model), one_model(biases, model)):
            for place in path:
                through = product(path, without=place) ** p
                sums[place] = sums.get(place, 0.0) + through
        for (kind, layer, *unit), expected in sums.items():
            gammas = found_weights if kind == "weight" else found_biases
            result = gammas[layer][(model, *unit)].item()
            assert result == pytest.approx(expected ** (2 / p), rel=1e-12)


@pytest.mark.parametrize("p", POWERS)
def test_every_layer_carries_all_paths(p):
    weights, _ = layers()
    gammas, _ = dense_gammas(weights, None, p)
    for weight, gamma in zip(weights, gammas, strict=True):
        carried = (weight.abs() ** p * gamma ** (p / 2)).sum((1, 2))
        torch.testing.assert_close(
            carried, path_norm(weights, None, p) ** p, rtol=1e-12, atol=0
        )


def test_two_hidden_units_by_hand():
    first = torch.tensor([[[6.0, 1.0], [1.0, 4.0]]])
    last = torch.tensor([[[1.0, 1.0], [1.0, 2.0]]])
    assert path_norm([first, last], None, 1).tolist() == [29.0]
    assert group_norm([first, last], 1, math.inf).tolist() == [7.0]
    scale = torch.tensor([10.0, 1.0])
    first, last = first * scale[:, None], last / scale
    assert path_norm([first, last], None, 1).tolist() == [pytest.approx(29.0)]
    assert group_norm([first, last], 1, math.inf).tolist() == [70.0]


@pytest.mark.parametrize("p", POWERS)
def test_rescaling_units_leaves_the_path_norm_and_moves_the_largest_unit(p):
    weights, biases = layers()
    generator = torch.Generator().manual_seed(1)
    others, other_biases = weights, biases
    for _ in range(4):
        others, other_biases = rescaled(others, other_biases, generator)
    torch.testing.assert_close(
        path_norm(others, other_biases, p),
        path_norm(weights, biases, p),
        rtol=1e-10,
        atol=0,
    )
    before, after = group_norm(weights, p, math.inf), group_norm(others, p, math.inf)
    assert (after > 10 * before).all()


def test_gammas_scale_against_the_weights_that_lead_into_a_unit_and_out_of_it():
    weights, _ = layers()
    changed = [weight.clone() for weight in weights]
    changed[0][:, 1] *= 10
    changed[1][:, :, 1] /= 10
    before, _ = dense_gammas(weights, None, 2)
    after, _ = dense_gammas(changed, None, 2)
    torch.testing.assert_close(after[0][:, 1], before[0][:, 1] / 100)
    torch.testing.assert_close(after[1][:, :, 1], before[1][:, :, 1] * 100)
    torch.testing.assert_close(after[2], before[2])


def test_group_norms_have_their_familiar_names():
    weights, _ = layers()
    every = torch.cat([weight.flatten(1) for weight in weights], dim=1)
    torch.testing.assert_close(group_norm(weights, 2, 2), every.norm(dim=1))
    torch.testing.assert_close(group_norm(weights, 1, 1), every.abs().sum(1))


@pytest.mark.parametrize("p", POWERS)
def test_group_norms_fall_with_q_to_the_largest_unit(p):
    weights, _ = layers()
    powers = (1, 2, 4, 16, 256, math.inf)
    norms = torch.stack([group_norm(weights, p, q) for q in powers])
    assert (norms.diff(dim=0) <= 1e-12).all()
    torch.testing.assert_close(norms[-2], norms[-1], rtol=0.02, atol=0)


@pytest.mark.parametrize("p", POWERS)
def test_with_one_output_balance_brings_the_largest_unit_down_to_the_path_norm(p):
    weights, biases = layers(widths=(3, 4, 2, 1))
    even = balanced(weights, p)
    smallest = group_norm(even, p, math.inf) ** len(weights)
    torch.testing.assert_close(smallest, path_norm(weights, None, p))
    inputs = torch.randn(2, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(relu_net(even, inputs), relu_net(weights, inputs))
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        other, _ = rescaled(weights, biases, generator, reach=0.5)
        assert (group_norm(other, p, math.inf) ** 3 >= smallest).all()


def test_with_two_outputs_the_path_norm_is_more_than_the_largest_unit_must_be():
    first = torch.tensor([[[6.0, 1.0], [1.0, 4.0]]])
    last = torch.tensor([[[1.0, 1.0], [1.0, 2.0]]])
    per_output = [path_norm([first, row[:, None]], None, 1) for row in last.unbind(1)]
    assert [norm.item() for norm in per_output] == [12.0, 17.0]
    even = balanced([first, last[:, 1:]], 1)
    assert group_norm(even, 1, math.inf).item() ** 2 == pytest.approx(17.0)


def relu_net(weights, x):
    for weight in weights[:-1]:
        x = (weight @ x).relu()
    return weights[-1] @ x
