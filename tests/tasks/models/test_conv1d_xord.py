"""The convolutional network for distributed exclusive or."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build
from tests.tasks.toys import as_data, compute, member, train_all, train_member

XORD = {"kind": "conv1d_xord"}


def test_every_filter_and_every_bias_of_one_is_a_tensor():
    net = build(XORD, (5, 2), 1)
    assert net.layout.names == (
        *(f"filter{n}.{part}" for n in range(1, 7) for part in ("weight", "bias")),
        "dense.weight",
        "dense.bias",
    )
    assert net.layout.shapes[:2] == ((1, 1, 2), (1,))
    assert net.layout.shapes[-2:] == ((1, 30), (1,))
    assert net.num_parameters == 12 + 6 + 30 + 1


def test_one_tensor_for_all_filters_holds_the_same_function():
    apart = build(XORD, (5, 2), 1)
    joint = build({**XORD, "separate_filters": False}, (5, 2), 1)
    assert joint.layout.names[:2] == ("filters.weight", "filters.bias")
    weights = torch.randn(2, 49, generator=stream(0, "t"), dtype=torch.float64)
    tensors = apart.layout.named(weights)
    same = {
        f"filters.{part}": torch.cat(
            [tensors[f"filter{n}.{part}"] for n in range(1, 7)], dim=1
        )
        for part in ("weight", "bias")
    }
    same |= {name: tensors[name] for name in ("dense.weight", "dense.bias")}
    x = torch.randn(1, 7, 5, 2, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(
        apart.outputs(weights, x), joint.outputs(joint.layout.flatten(same), x)
    )
    # Tensors of a filter each add up to more than one tensor of them all.
    assert (
        apart.layout.norms(weights).sum(1) > joint.layout.norms(weights).sum(1)
    ).all()


def test_strings_may_come_as_rows_or_as_pairs():
    net = build(XORD, (10,), 1)
    weights = torch.randn(2, 49, generator=stream(0, "t"), dtype=torch.float64)
    x = torch.randn(2, 7, 10, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(
        net.outputs(weights, x), net.outputs(weights, x.reshape(2, 7, 5, 2))
    )


def test_half_a_pair_is_refused():
    with pytest.raises(InputError) as caught:
        build(XORD, (7,), 1)
    assert str(caught.value) == (
        "model: expected an even number of inputs for conv1d_xord, got inputs of shape "
        "(7,). Take data.xord."
    )


def test_it_learns_its_task():
    (made,) = compute("data.xord", [member("data.xord", {})])
    members = [
        train_member(
            as_data(made.arrays),
            model={**XORD, "activation": "relu"},
            rule={"rule": "adam", "lr": 0.05},
            seed=seed,
            epochs=300,
            record_every=100,
        )
        for seed in range(4)
    ]
    losses = [outcome.arrays["final_train_loss"] for outcome in train_all(members)]
    assert np.median(losses) < 0.05
