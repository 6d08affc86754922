"""Vision transformers."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

SMALL = {"kind": "vit", "patch_size": 2, "depth": 2, "width": 8, "heads": 2}


def normal(*shape, purpose="t"):
    return torch.randn(shape, generator=stream(0, purpose), dtype=torch.float64)


def test_the_published_base_network_has_its_published_number_of_parameters():
    spec = {"kind": "vit", "patch_size": 16, "depth": 12, "width": 768, "heads": 12}
    # As timm and torchvision count vit_b_16: 86,567,656.
    assert build(spec, (3, 224, 224), 1000).num_parameters == 86_567_656


def test_it_is_an_encoder_of_torch_between_a_convolution_and_a_head():
    net = build(SMALL, (3, 4, 6), 5)
    weights = normal(2, net.num_parameters, purpose="w") / 2
    x = normal(7, 3, 4, 6, purpose="x")
    actual = net.outputs(weights, x[None])
    for model in range(2):
        expected = by_torch(net.layout.named(weights[model : model + 1]), x)
        torch.testing.assert_close(actual[model], expected, rtol=1e-10, atol=1e-10)


def by_torch(named, x):
    """Outputs of a network of SMALL by the modules that torch has of its parts."""
    tensors = {name: tensor[0] for name, tensor in named.items()}
    kernel = tensors["embedding.weight"].reshape(8, 3, 2, 2)
    h = nn.functional.conv2d(x, kernel, tensors["embedding.bias"], stride=2)
    first = tensors["token.weight"].expand(len(x), 1, 8)
    h = torch.cat([first, h.flatten(2).mT], dim=1) + tensors["positions.weight"]
    for number in (1, 2):
        layer = nn.TransformerEncoderLayer(
            8, 2, 32, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True,
            norm_first=True, dtype=torch.float64,
        )  # fmt: skip
        layer.load_state_dict(state_of(tensors, f"block{number}"))
        h = layer(h)
    scale, shift = tensors["norm.scale"], tensors["norm.shift"]
    h = nn.functional.layer_norm(h, (8,), scale, shift, 1e-6)
    return nn.functional.linear(h[:, 0], tensors["head.weight"], tensors["head.bias"])


def state_of(tensors, block):
    """Return the tensors of a block under the names of torch's encoder layer."""
    state = {}
    for part in ("weight", "bias"):
        projections = [
            tensors[f"{block}.attention.{p}.{part}"] for p in ("query", "key", "value")
        ]
        state[f"self_attn.in_proj_{part}"] = torch.cat(projections)
        state[f"self_attn.out_proj.{part}"] = tensors[f"{block}.attention.out.{part}"]
        for number in (1, 2):
            state[f"linear{number}.{part}"] = tensors[f"{block}.dense{number}.{part}"]
    for norm in ("norm1", "norm2"):
        state[f"{norm}.weight"] = tensors[f"{block}.{norm}.scale"]
        state[f"{norm}.bias"] = tensors[f"{block}.{norm}.shift"]
    return state


def test_the_order_of_patches_does_not_matter_without_places():
    net = build({**SMALL, "pooling": "mean"}, (1, 4, 4), 3)
    named = net.layout.named(normal(1, net.num_parameters) / 2)
    named["positions.weight"] = torch.zeros_like(named["positions.weight"])
    weights = net.layout.flatten(named)
    x = normal(1, 5, 1, 4, 4, purpose="x")
    swapped = torch.cat([x[..., 2:, :], x[..., :2, :]], dim=-2)
    torch.testing.assert_close(
        net.outputs(weights, x), net.outputs(weights, swapped), rtol=1e-10, atol=1e-12
    )


def test_weights_begin_by_glorot_and_the_learned_token_at_zero():
    net = build(SMALL, (3, 4, 6), 5)
    law = parse_model(SMALL).init
    drawn = initial_weights(net, stream(0, "init"), law)[None]
    named = net.layout.named(drawn)
    bound = math.sqrt(6 / (12 + 8))
    assert 0.8 * bound < named["embedding.weight"].abs().max() <= bound
    assert 0 < named["positions.weight"].abs().max() <= math.sqrt(6 / (7 + 8))
    for name, tensor in named.items():
        if name.endswith(("bias", "shift", "token.weight")):
            assert not tensor.any(), name


def test_dropout_comes_after_embeddings_in_attentions_and_after_both_parts():
    net = build({**SMALL, "depth": 1, "dropout": 0.25}, (1, 4, 4), 3)
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.ones(1, *shape, dtype=torch.float64)

    weights = normal(1, net.num_parameters)
    net.training_outputs(weights, torch.zeros(1, 0), normal(1, 6, 1, 4, 4), draw)
    # In the last block only the learned token asks.
    assert shapes == [(6, 5, 8), (6, 2, 1, 5), (6, 1, 8), (6, 1, 8)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 3}, "a width that is a multiple of 3 heads, got 8. Take 9"),
        ({"mlp_ratio": 0.05}, "an mlp_ratio of at least one unit, 0.125, got 0.05"),
        ({"pooling": "max"}, "'cls' or 'mean'"),
    ],
)
def test_what_cannot_be_is_refused_by_the_parameters(fields, message):
    with pytest.raises(ValidationError) as caught:
        parse_model({**SMALL, **fields})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 4, 5), "sides are multiples of 2 pixels, got 4x5. Take another patch"),
        ((16,), "expected images of shape (channels, height, width) for vit, got"),
    ],
)
def test_what_cannot_be_cut_is_refused(shape, message):
    with pytest.raises(InputError) as caught:
        build(SMALL, shape, 3)
    assert message in str(caught.value)
