"""Transformers."""

import cmath
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from curvflow.errors import InputError
from curvflow.tasks.numerics import dense_hessian, sample_losses, stream
from tests.tasks.models.examples import Sines, build

SMALL = {"kind": "transformer", "layers": 2, "width": 8, "heads": 2, "hidden": 12}
EXACT = {"rtol": 1e-11, "atol": 1e-12}


def normal(*shape, purpose="t"):
    return torch.randn(shape, generator=stream(0, purpose), dtype=torch.float64)


def tokens(*shape, most):
    return torch.randint(most, shape, generator=stream(0, "tokens"))


def weights_of(net, models=2):
    return normal(models, net.num_parameters, purpose="w") / 2


def of_tokens(length, outputs, **fields):
    """A network of as many tokens as labels."""
    spec = {**SMALL, **fields}
    return build(spec, (length,), outputs, length, takes_integers=True)


def to_torch(named, number, norm_first):
    """Return the tensors of a block under the names of torch's encoder layer."""
    block = {
        name.removeprefix(f"block{number}."): tensor[0]
        for name, tensor in named.items()
        if name.startswith(f"block{number}.")
    }
    pairs = [
        ("self_attn.out_proj", "attention.out"),
        ("linear1", "dense1"),
        ("linear2", "dense2"),
    ]
    found = {
        f"{theirs}.{part}": block[f"{ours}.{part}"]
        for theirs, ours in pairs
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        found[f"self_attn.in_proj_{part}"] = torch.cat(
            [block[f"attention.{p}.{part}"] for p in ("query", "key", "value")]
        )
    for norm in ("norm1", "norm2"):
        found[f"{norm}.weight"] = block[f"{norm}.scale"]
        found[f"{norm}.bias"] = block[f"{norm}.shift"]
    return found


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("causal", [True, False])
def test_blocks_are_the_encoder_layers_of_torch(norm, causal):
    fields = {"norm": norm, "causal": causal, "positions": "none", "activation": "relu"}
    net = build({**SMALL, **fields}, (5, 3), 4, 5)
    weights = weights_of(net, 1)
    named = net.layout.named(weights)
    x = normal(1, 6, 5, 3)
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre"
    ).double()
    h = x[0] @ named["embedding.weight"][0].T + named["embedding.bias"][0]
    mask = nn.Transformer.generate_square_subsequent_mask(5).double()
    for number in (1, 2):
        theirs = to_torch(named, number, norm == "pre")
        h = functional_call(layer, theirs, (h, mask if causal else None))
    if norm == "pre":
        scale, shift = named["norm.scale"][0], named["norm.shift"][0]
        h = nn.functional.layer_norm(h, (8,), scale, shift)
    expected = h @ named["head.weight"][0].T + named["head.bias"][0]
    torch.testing.assert_close(net.outputs(weights, x)[0], expected, **EXACT)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_outputs_of_a_decoder_do_not_depend_on_later_tokens(positions):
    net = of_tokens(6, 7, positions=positions)
    weights = weights_of(net)
    ids = tokens(1, 3, 6, most=7)
    outputs = net.outputs(weights, ids)
    for place in range(6):
        other = ids.clone()
        other[..., place] = (other[..., place] + 1) % 7
        changed = (net.outputs(weights, other) - outputs).abs().amax((0, 1, 3))
        assert (changed[:place] == 0).all()
        assert changed[place] > 1e-3
        assert (changed[place:] > 1e-6).all()


def test_outputs_of_an_encoder_depend_on_every_token():
    net = of_tokens(5, 7, causal=False, readout="tokens")
    weights, ids = weights_of(net), tokens(1, 3, 5, most=7)
    other = ids.clone()
    other[..., 4] = (other[..., 4] + 1) % 7
    changed = (net.outputs(weights, other) - net.outputs(weights, ids)).abs()
    assert (changed.amax((0, 1, 3)) > 1e-6).all()


def test_without_positions_an_encoder_does_not_see_their_order():
    fields = {"causal": False, "vocabulary": 7, "readout": "mean"}
    ids = tokens(1, 4, 5, most=7)
    for kind, is_equal in (("none", True), ("sinusoidal", False), ("rotary", False)):
        net = build(
            {**SMALL, **fields, "positions": kind}, (5,), 3, takes_integers=True
        )
        weights = weights_of(net)
        gap = net.outputs(weights, ids) - net.outputs(weights, ids.flip(2))
        assert (float(gap.abs().max()) < 1e-12) == is_equal


def test_a_sample_read_at_its_last_token_is_that_of_all_tokens():
    # The last block computes the last token alone.
    for fields in ({}, {"norm": "post"}, {"norm": "none", "positions": "rotary"}):
        spec = {**SMALL, **fields, "vocabulary": 5}
        whole = build(spec, (4,), 5, 4, takes_integers=True)
        last = build(spec, (4,), 5, takes_integers=True)
        assert last.layout == whole.layout
        assert last.width < whole.width
        weights, ids = weights_of(whole), tokens(1, 3, 4, most=5)
        torch.testing.assert_close(
            last.outputs(weights, ids), whole.outputs(weights, ids)[:, :, -1], **EXACT
        )


@pytest.mark.parametrize("width", [3, 4])
def test_sines_have_the_wavelengths_of_the_formula(width):
    spec = {
        "kind": "attention_only", "layers": 1, "width": width, "heads": 1,
        "norm": "none", "positions": "sinusoidal", "bias": False,
    }  # fmt: skip
    net = build(spec, (5, width), width, 5)
    eye = torch.eye(width, dtype=torch.float64).unsqueeze(0)
    named = {name: torch.zeros_like(eye) for name in net.layout.names}
    for name in ("embedding", "head"):
        named[f"{name}.weight"] = eye
    x = normal(1, 2, 5, width)
    outputs = net.outputs(net.layout.flatten(named), x)
    torch.testing.assert_close(outputs[0], Sines()(x[0]), **EXACT)


def test_rotary_scores_are_those_of_a_plain_loop():
    spec = {
        "kind": "transformer", "layers": 1, "width": 4, "heads": 1, "norm": "none",
        "positions": "rotary", "causal": True, "hidden": 1, "bias": False,
    }  # fmt: skip
    net = build(spec, (5, 4), 4, 5)
    named = {name: t.clone() for name, t in net.layout.named(weights_of(net)).items()}
    eye = torch.eye(4, dtype=torch.float64).expand(2, -1, -1)
    # What is left is x and its attention.
    for name in ("embedding", "head", "block1.attention.value", "block1.attention.out"):
        named[f"{name}.weight"] = eye
    named["block1.dense2.weight"] = torch.zeros(2, 4, 1, dtype=torch.float64)
    x = normal(1, 3, 5, 4)
    outputs = net.outputs(net.layout.flatten(named), x)
    for model, sample in ((0, 0), (1, 2)):
        rows = x[0, sample]
        q, k = (
            (rows @ named[f"block1.attention.{part}.weight"][model].T).tolist()
            for part in ("query", "key")
        )
        for place in range(5):
            weights = [
                math.exp(turned_product(q[place], k[other], place, other) / 2)
                for other in range(place + 1)
            ]
            mean = sum(w * rows[n] for n, w in enumerate(weights)) / sum(weights)
            expected = rows[place] + mean
            torch.testing.assert_close(outputs[model, sample, place], expected, **EXACT)


def turned_product(q, k, place, other):
    """Su et al. (2021), arXiv:2104.09864, section 3.2: only the distance counts."""
    total = 0.0
    for pair in range(2):
        turn = cmath.exp(1j * (place - other) * 10_000 ** (-2 * pair / 4))
        a, b = (complex(*v[2 * pair : 2 * pair + 2]) for v in (q, k))
        total += (a * b.conjugate() * turn).real
    return total


def test_the_tied_embedding_is_one_tensor():
    net = of_tokens(3, 6, tied=True)
    assert "head.weight" not in net.layout.names
    assert net.layout.shapes[0] == (6, 8)
    # 6 embeddings, 3 positions; of a block 4 (8 + 1) 8 + 2 * 12 * 8 + 12 + 8 + 4 * 8.
    assert net.num_parameters == 9 * 8 + 2 * (288 + 192 + 20 + 32) + 16


def test_the_hessian_by_a_tied_embedding_counts_both_of_its_uses():
    # Linear but for the softmax: logits of one token are E E_t + head of nothing.
    spec = {
        "kind": "attention_only", "layers": 1, "width": 2, "heads": 1, "norm": "none",
        "positions": "none", "bias": False, "tied": True, "vocabulary": 3,
    }  # fmt: skip
    net = build(spec, (1,), 3, takes_integers=True)
    weights = weights_of(net, 1)
    named = net.layout.named(weights)
    named["block1.attention.out.weight"] = torch.zeros(1, 2, 2, dtype=torch.float64)
    weights_D = net.layout.flatten(named)[0]
    ids, labels = torch.tensor([[0], [1], [1]]), torch.tensor([2, 0, 1])

    def losses(weights, inputs, targets):
        return sample_losses("cross_entropy")(net.outputs(weights, inputs), targets)

    def plain(table_D):
        table = table_D.reshape(3, 2)
        logits = torch.stack([table @ table[int(token)] for token in ids])
        return nn.functional.cross_entropy(logits, labels)

    H = dense_hessian(losses, weights_D, ids, labels)[:6, :6]
    exact = torch.autograd.functional.hessian(plain, weights_D[:6])
    torch.testing.assert_close(H, exact, **EXACT)


def test_dropout_comes_after_embeddings_in_attentions_and_after_both_parts():
    net = of_tokens(3, 5, layers=1, dropout=0.25)
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.ones(2, *shape, dtype=torch.float64)

    weights, ids = weights_of(net), tokens(1, 4, 3, most=5)
    none = torch.zeros(2, 0)
    net.training_outputs(weights, none, ids, draw)
    assert shapes == [(4, 3, 8), (4, 2, 3, 3), (4, 3, 8), (4, 3, 8)]
    # What is always kept is divided by 3/4.
    kept, _ = of_tokens(3, 5, layers=1).training_outputs(weights, none, ids, draw)
    ours, _ = net.training_outputs(weights, none, ids, draw)
    assert not torch.allclose(ours, kept)


def test_memory_grows_with_the_square_of_the_tokens():
    widths = [of_tokens(length, 5).width for length in (8, 16, 32)]
    per_token = [w / n for w, n in zip(widths, (8, 16, 32), strict=True)]
    # Twice the heads of both blocks, for every other token.
    assert per_token[1] - per_token[0] == pytest.approx(2 * 2 * 2 * 8)
    assert per_token[2] - per_token[1] == pytest.approx(2 * 2 * 2 * 16)


def test_a_token_beyond_the_context_is_refused():
    with pytest.raises(InputError, match="at most 4 tokens a sample, the context, got"):
        of_tokens(5, 7, context=4)
    assert of_tokens(4, 7, context=9).layout.shapes[1] == (9, 8)


@pytest.mark.parametrize(
    ("fields", "shape", "tokens", "integers", "message"),
    [
        ({}, (4,), None, True, "expected a vocabulary for tokens with one target"),
        ({"vocabulary": 4}, (4,), None, False, "got real numbers of shape (4,)"),
        ({}, (4, 2), None, True, "got integers of shape (4, 2)"),
        ({}, (1, 4, 4), None, False, "expected rows of tokens, or of vectors"),
        (
            {"vocabulary": 4},
            (4, 2),
            None,
            False,
            "expected tokens with vocabulary, got vectors",
        ),
        ({"vocabulary": 4, "tied": True}, (4,), None, True, "outputs, 3, with tied"),
        ({"tied": True}, (4, 2), None, False, "expected tokens with tied, got vectors"),
        ({"readout": "tokens"}, (4, 2), None, False, "a label for each token with"),
        ({"readout": "last"}, (4, 2), 4, False, "one target a sample with readout"),
        ({}, (4, 2), 3, False, "expected a label for each of 4 tokens, got 3"),
    ],
)
def test_samples_that_do_not_fit_are_refused(fields, shape, tokens, integers, message):
    with pytest.raises(InputError) as caught:
        build({**SMALL, **fields}, shape, 3, tokens, takes_integers=integers)
    assert message in str(caught.value)
    assert str(caught.value).startswith("model: ")


def test_paths_are_not_counted():
    assert not of_tokens(3, 5).has_paths
