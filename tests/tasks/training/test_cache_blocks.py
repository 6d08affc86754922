"""Passes over some models at a time."""

import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import stream
from curvflow.tasks.training import cache_blocks
from curvflow.tasks.training.gradients import Noise, gradients
from tests.tasks.toys import TANH_NET, blobs


def derived(problem, weights, samples):
    noise = Noise(range(5), 0, "dropout", weights)
    result = gradients(problem, weights, weights[:, :0], samples, noise, without=2)
    return result.losses, result.gradient, result.product


def test_passes_over_few_models_give_what_one_pass_gives(monkeypatch):
    data = [blobs(seed=seed) for seed in range(5)]
    problem = pose(parse_model(TANH_NET), "auto", data[0])
    weights = torch.randn(
        5, problem.network.num_parameters, generator=stream(0, "t"), dtype=torch.float64
    )
    for stacked in (data, data[:1]):
        samples = load_samples(problem, stacked, "", "cpu", torch.float64)
        whole = derived(problem, weights, samples)
        with monkeypatch.context() as patch:
            patch.setattr(
                cache_blocks, "CPU_PASS_BYTES", 2 * 30 * 8 * problem.network.width
            )
            parts = derived(problem, weights, samples)
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("fit", [1, 2, 4])
def test_no_pass_is_of_a_single_model(monkeypatch, fit):
    data = [blobs(seed=seed) for seed in range(5)]
    problem = pose(parse_model(TANH_NET), "auto", data[0])
    samples = load_samples(problem, data, "", "cpu", torch.float64)
    seen = []

    def counted(models):
        assert len(samples.models(models).inputs) == len(weights[models])
        seen.append(len(weights[models]))
        return weights[models], weights[models]

    monkeypatch.setattr(
        cache_blocks, "CPU_PASS_BYTES", fit * 30 * 8 * problem.network.width
    )
    weights = torch.ones(5, problem.network.num_parameters, dtype=torch.float64)
    whole, _ = cache_blocks.apply_in_blocks(
        counted, problem, slice(0, 5), samples, weights
    )
    assert len(whole) == sum(seen) == 5
    assert min(seen) >= 2


def test_models_are_numbered_as_all_models_are(monkeypatch):
    data = [blobs(seed=0)]
    problem = pose(parse_model(TANH_NET), "auto", data[0])
    samples = load_samples(problem, data, "", "cpu", torch.float64)
    monkeypatch.setattr(cache_blocks, "CPU_PASS_BYTES", 1)
    weights = torch.arange(9, dtype=torch.float64)
    asked = []

    def noted(models):
        asked.extend(range(models.start, models.stop))
        return (weights[models],)

    (result,) = cache_blocks.apply_in_blocks(
        noted, problem, slice(2, 7), samples, weights
    )
    assert asked == result.tolist() == [2, 3, 4, 5, 6]
