"""Autoencoders."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from tests.tasks.models.examples import build
from tests.tasks.toys import as_data, blobs, compute, member, train_all, train_member


def test_the_decoder_mirrors_the_encoder():
    net = build({"kind": "autoencoder", "hidden": [6, 4, 2]}, (3, 3), 9)
    weights = [shape for shape in net.layout.shapes if len(shape) == 2]
    assert weights == [(6, 9), (4, 6), (2, 4), (4, 2), (6, 4), (9, 6)]


def test_targets_that_are_no_inputs_are_refused():
    with pytest.raises(InputError) as caught:
        build({"kind": "autoencoder", "hidden": [2]}, (3, 3), 10)
    assert str(caught.value) == (
        "model: expected as many target values as inputs, 9, for autoencoder, got 10 "
        "outputs. Take data whose targets are their inputs, as rows."
    )


def test_without_activation_it_comes_to_the_principal_components():
    x = np.random.default_rng(0).normal(size=(40, 4)) * [3.0, 2.0, 0.5, 0.2]
    x -= x.mean(0)
    member = train_member(
        as_data(dataset(x, x)),
        model={
            "kind": "autoencoder",
            "hidden": [2],
            "activation": "identity",
            "bias": False,
        },
        rule={"rule": "sgd", "lr": 0.1, "momentum": 0.9},
        epochs=2000,
        record_every=1000,
    )
    left = np.linalg.svd(x, compute_uv=False)[2:]
    best = np.square(left).sum() / x.size
    for outcome in train_all([member, member]):
        assert outcome.arrays["final_train_loss"] == pytest.approx(best, rel=1e-8)


def test_it_learns_data_whose_inputs_are_their_own_targets():
    wish = {"targets": "inputs", "normalise": "standard"}
    (made,) = compute("data.modify", [member("data.modify", wish, data=blobs())])
    fit = train_member(
        as_data(made.arrays),
        model={"kind": "autoencoder", "hidden": [4, 2]},
        rule={"rule": "adam", "lr": 0.01},
        epochs=50,
    )
    for outcome in train_all([fit, fit]):
        assert outcome.arrays["train_loss"][-1] < 0.9 * outcome.arrays["train_loss"][0]
