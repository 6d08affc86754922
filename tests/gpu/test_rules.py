"""Training on a GPU ends where it ends on the CPU."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.schemas.nodes import NodeData
from curvflow.tasks.registry import find
from tests.gpu.cards import GPU, assert_alike, on_a_gpu
from tests.tasks.rules.test_all import CASES, members
from tests.tasks.toys import (
    ADAM,
    SGD,
    TANH_NET,
    blobs,
    train_all,
    train_member,
    waves,
)
from tests.tasks.training.test_convolutional_training import RESIDUAL, images

pytestmark = on_a_gpu

# What a training does beside the steps of its rule.
TRAININGS = {
    "dropout": {"model": TANH_NET | {"dropout": 0.3}},
    "label-noise": {"label_noise": 0.2},
    "accumulated": {"accumulation": 2},
    "validation": {"validation_fraction": 0.2},
    "statistics": {"data": images(), "model": RESIDUAL},
    "augmented": {"data": images(), "model": RESIDUAL, "augment": {"shift": 1}},
    "regression": {"data": waves(), "loss": "mse"},
    "checkpoints": {"checkpoints": {"every": 1}},
}


def on_gpu(several):
    return find("train").compute(several, GPU)


# SOAP fixes the eigenvectors of equal eigenvalues by RAMP: they are rounded to
# 1e-16 / 1e-6. There the gradient is rounding alone, and is divided by eps = 1e-8: the
# steps, of 0.02 at most, end within 1e-10 / 1e-8 of them, 2e-4.
RTOL = {"soap": 2e-4}


def assert_trained_alike(found, expected, rtol=1e-6):
    for a, b in zip(found, expected, strict=True):
        assert (a.status, a.reason) == (b.status, b.reason)
        for name in ("weights", "train_loss", "update_norm"):
            assert np.isfinite(b.arrays[name]).all()
            assert_alike(a.arrays[name], b.arrays[name], rtol=rtol, name=name)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_rule_ends_at_the_same_weights(name, settings):
    several = members(name, settings)
    assert_trained_alike(on_gpu(several), train_all(several), RTOL.get(name, 1e-6))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_training_goes_on_from_what_the_cpu_has_done(name, settings):
    several = [m for m in members(name, settings) if m.params.rule.is_extendable]
    if not several:
        return
    begun = members(name, settings, epochs=2)
    short = train_all([m for m in begun if m.params.rule.is_extendable])
    longer = [
        replace(m, earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status))
        for m, done in zip(several, short, strict=True)
    ]
    assert_trained_alike(on_gpu(longer), train_all(several), RTOL.get(name, 1e-6))


def in_batches(**how):
    settings = {"data": blobs(), "batch_size": 6, "epochs": 3, **how}
    data = settings.pop("data")
    return [
        train_member(data, rule=rule, seed=seed, **settings)
        for seed in range(2)
        for rule in (SGD, ADAM)
    ]


@pytest.mark.parametrize("how", TRAININGS.values(), ids=TRAININGS)
def test_what_a_training_does_beside_is_the_same(how):
    several = in_batches(**how)
    assert_trained_alike(on_gpu(several), train_all(several))


def test_convolutions_are_trained_in_single_precision_and_not_in_less():
    # After one epoch rounding is 8e-7 of the weights; that of TF32 were 2e-4 or more.
    found, expected = (
        [
            train_member(
                images(), model=RESIDUAL, batch_size=6, epochs=1, seed=seed, dtype=dtype
            )
            for seed in range(3)
        ]
        for dtype in ("float32", "float64")
    )
    assert_trained_alike(on_gpu(found), train_all(expected), rtol=1e-5)


@pytest.mark.parametrize("compiler", ["default", "reduce-overhead"])
def test_compiled_steps_end_at_the_same_weights(compiler):
    several = in_batches()
    compiled = find("train").compute(several, replace(GPU, compiler=compiler))
    assert_trained_alike(compiled, train_all(several))
