"""Gradients of a batch in parts, against those of the whole."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import stream
from curvflow.tasks.registry import find
from curvflow.tasks.train import member_bytes
from curvflow.tasks.training.gradients import (
    Noise,
    gradient_at,
    gradients,
    parts_of,
)
from tests.tasks.toys import TANH_NET, blobs, train_all, train_member, waves
from tests.tasks.training.test_convolutional_training import DROPOUT, NORM, images

EXACT = {"rtol": 1e-11, "atol": 1e-14}


def posed(data, model, loss="auto", models=3):
    problem = pose(parse_model(model), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    size = problem.network.num_parameters
    weights = torch.randn(models, size, generator=stream(0, "t"), dtype=torch.float64)
    statistics = problem.network.first_statistics().double().expand(models, -1)
    return problem, weights / 2, statistics, samples


def derived(problem, weights, statistics, samples, **rest):
    noise = Noise(range(len(weights)), 0, "dropout", weights)
    return gradients(problem, weights, statistics, samples, noise, without=0, **rest)


@pytest.mark.parametrize("parts", [2, 7, 1000])
@pytest.mark.parametrize(
    ("data", "model", "loss"),
    [
        (blobs(), TANH_NET, "cross_entropy"),
        (waves(), TANH_NET, "mse"),
        (waves(), TANH_NET, "sse"),
        (images(), DROPOUT, "cross_entropy"),
    ],
    ids=["cross_entropy", "mse", "sse", "dropout"],
)
def test_losses_gradients_and_products_are_those_of_the_whole(data, model, loss, parts):
    toy = posed(data, model, loss)
    whole, sum_of_parts = derived(*toy), derived(*toy, accumulation=parts)
    for name in ("losses", "gradient", "product"):
        actual, expected = getattr(sum_of_parts, name), getattr(whole, name)
        torch.testing.assert_close(actual, expected, **EXACT)
    problem, weights, statistics, samples = toy
    noise = Noise(range(3), 0, "dropout", weights)
    again = gradient_at(
        problem, weights, statistics, samples, noise, accumulation=parts
    )
    torch.testing.assert_close(again, whole.gradient, **EXACT)


def test_a_batch_norm_sees_the_samples_of_a_part():
    problem, weights, statistics, samples = posed(images(), NORM)
    actual = derived(problem, weights, statistics, samples, accumulation=3)
    total, moved = torch.zeros_like(weights), statistics
    for start, stop in pairwise([0, 6, 13, 20]):
        part = samples.rows(slice(start, stop))
        values = derived(problem, weights, moved, part)
        total += values.gradient * (stop - start) / 20
        moved = values.statistics
    torch.testing.assert_close(actual.gradient, total, **EXACT)
    torch.testing.assert_close(actual.statistics, moved, **EXACT)
    whole = derived(problem, weights, statistics, samples)
    assert not torch.allclose(actual.gradient, whole.gradient, rtol=1e-3)
    assert not torch.allclose(actual.statistics, whole.statistics, rtol=1e-3)


RULES = [
    {"rule": "sam", "inner": {"rule": "sgd", "lr": 0.05}, "rho": 0.3},
    {"rule": "metric", "lr": 0.05, "rate": 0.001},
    {"rule": "lanczos_newton", "lr": 0.1, "damping": 1.0, "num_steps": 4},
    {"rule": "sgd", "lr": 0.05, "momentum": 0.9},
]


def members(**settings):
    fixed = {"model": DROPOUT, "epochs": 2, "batch_size": 8, **settings}
    return [train_member(images(), rule=spec, seed=1, **fixed) for spec in RULES]


def test_training_in_parts_is_training_with_the_whole():
    whole, parts = train_all(members()), train_all(members(accumulation=3))
    for first, other in zip(parts, whole, strict=True):
        assert first.status == other.status == "ok"
        for name in ("weights", "train_loss"):
            np.testing.assert_allclose(
                first.arrays[name], other.arrays[name], rtol=1e-8, atol=1e-11
            )


def test_parts_need_the_memory_of_their_samples():
    assert member_bytes is find("train").member_bytes
    whole, parts = (
        member_bytes(train_member(images(200), model=NORM, accumulation=k))
        for k in (1, 10)
    )
    assert parts < whole


def test_more_parts_than_samples_are_refused():
    with pytest.raises(ValidationError, match="at most the 8 samples of a batch"):
        members(accumulation=9)


@pytest.mark.parametrize("length", [3, 5, 10])
def test_parts_of_sequences_that_come_first_draw_what_the_whole_does(length):
    def drawn(shape):
        return Noise([0, 1], 0, "dropout", torch.zeros(1)).uniform()(shape)

    whole = drawn((length, 10, 2))
    for part in parts_of(10, 2):
        own = part.draw(lambda shape: drawn(shape))((length, 5, 2))
        # Where both axes count five, the first is taken for the samples.
        assert torch.equal(own, whole[:, :, part.rows]) == (length != 5)
