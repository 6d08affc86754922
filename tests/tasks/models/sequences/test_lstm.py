"""Networks with long short-term memory."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

LSTM = {"kind": "lstm", "hidden": 3}


def normal(*shape, purpose="t"):
    return torch.randn(shape, generator=stream(0, purpose), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_outputs_do_not_depend_on_later_tokens(kind):
    net = build({"kind": kind, "hidden": 3, "layers": 2}, (5,), 4, 5,
                takes_integers=True)  # fmt: skip
    weights = normal(2, net.num_parameters, purpose="w")
    ids = torch.randint(4, (1, 3, 5), generator=stream(0, "x"))
    outputs = net.outputs(weights, ids)
    for place in range(5):
        other = ids.clone()
        other[..., place] = (other[..., place] + 1) % 4
        changed = (net.outputs(weights, other) - outputs).abs().amax((0, 1, 3))
        assert (changed[:place] == 0).all()
        assert (changed[place:] > 1e-5).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_sample_read_at_its_last_token_is_that_of_all_tokens(kind):
    spec = {"kind": kind, "hidden": 3, "layers": 2}
    whole, last = build(spec, (4, 2), 3, 4), build(spec, (4, 2), 3)
    weights, x = normal(2, whole.num_parameters, purpose="w"), normal(1, 5, 4, 2)
    torch.testing.assert_close(
        last.outputs(weights, x), whole.outputs(weights, x)[:, :, -1]
    )


def test_a_cell_that_keeps_all_adds_up_what_comes_in():
    # Gates i and o open, f open, g linear for small inputs: a counter.
    net = build({**LSTM, "hidden": 1}, (6, 1), 1)
    named = {
        name: torch.zeros(1, *shape, dtype=torch.float64)
        for name, shape in zip(net.layout.names, net.layout.shapes, strict=True)
    }
    named["layer1.bias_ih"] = torch.tensor([[50.0, 50.0, 0.0, 50.0]]).double()
    named["layer1.weight_ih"][0, 2] = 1e-4
    named["head.weight"] += 1e4
    x = normal(1, 4, 6, 1)
    outputs = net.outputs(net.layout.flatten(named), x)
    torch.testing.assert_close(outputs, x.sum(2), rtol=1e-6, atol=1e-6)


def test_only_the_sum_of_the_biases_matters():
    net = build(LSTM, (4, 2), 3)
    weights, x = normal(1, net.num_parameters, purpose="w"), normal(1, 5, 4, 2)
    named = dict(net.layout.named(weights))
    shift = normal(1, 12, purpose="s")
    named["layer1.bias_ih"] = named["layer1.bias_ih"] + shift
    named["layer1.bias_hh"] = named["layer1.bias_hh"] - shift
    torch.testing.assert_close(
        net.outputs(net.layout.flatten(named), x), net.outputs(weights, x)
    )


def test_parameters_are_counted():
    net = build({**LSTM, "layers": 2, "embedding": 5, "vocabulary": 7}, (4,), 2,
                takes_integers=True)  # fmt: skip
    layers = 4 * (5 + 3 + 2) * 3 + 4 * (3 + 3 + 2) * 3
    assert net.num_parameters == 7 * 5 + layers + 3 * 2 + 2
    assert net.vocabulary == 7
    assert not net.has_paths


def test_dropout_is_between_layers():
    shapes = []

    def draw(shape):
        shapes.append(shape)
        return torch.ones(2, *shape)

    net = build({**LSTM, "layers": 3, "dropout": 0.5}, (4, 2), 2)
    weights = torch.zeros(2, net.num_parameters)
    net.training_outputs(weights, torch.zeros(2, 0), torch.ones(1, 5, 4, 2), draw)
    assert shapes == [(5, 4, 3), (5, 4, 3)]


def test_an_embedding_of_vectors_is_refused():
    with pytest.raises(InputError, match="expected tokens with embedding, got vectors"):
        build({**LSTM, "embedding": 2}, (4, 2), 3)
