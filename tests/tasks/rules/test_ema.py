"""A fading mean of the weights of another rule."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import PROBLEM, gradient, rule, started, step_at
from tests.tasks.toys import blobs, train_all, train_member
from tests.tasks.training.test_convolutional_training import NORM, images

# For the tests that hold for all rules.
SETTINGS = [
    {"inner": {"rule": "sgd", "lr": 0.1, "momentum": 0.9}, "decay": 0.5},
    {"inner": {"rule": "adamw", "lr": 0.02}, "decay": 0.8},
    {"inner": {"rule": "sam", "inner": {"rule": "sgd", "lr": 0.1}}, "decay": 0.5},
]

EXACT = {"rtol": 1e-12, "atol": 1e-13}
ADAM = {"rule": "adam", "lr": 0.05}
SGD = {"rule": "sgd", "lr": 0.05, "momentum": 0.5}
OPTIMISERS = {
    "adam": partial(torch.optim.Adam, lr=0.05),
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.5),
}


@pytest.mark.parametrize("inner", [ADAM, SGD], ids=["adam", "sgd"])
def test_every_mean_is_that_of_torch(inner):
    decays = [0.0, 0.5, 0.99]
    start = started(3)
    rules = [rule(rule="ema", inner=inner, decay=decay) for decay in decays]
    weights, updates = start, Updates(rules, start, PROBLEM)
    models = [torch.nn.ParameterList([row.clone()]) for row in start]
    steppers = [OPTIMISERS[inner["rule"]](model.parameters()) for model in models]
    means = [
        AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
        for model, decay in zip(models, decays, strict=True)
    ]
    for count in range(12):
        now = step_at(count, 3)
        weights = updates.step(gradient(weights, count), weights, now)
        results = updates.evaluated(weights)
        for row, model in enumerate(models):
            model[0].grad = gradient(model[0].detach(), count)
            steppers[row].step()
            means[row].update_parameters(model)
            (mean,) = means[row].module.parameters()
            torch.testing.assert_close(weights[row], model[0].detach(), **EXACT)
            torch.testing.assert_close(results[row], mean.detach(), **EXACT)


def test_training_returns_the_mean_with_statistics_of_its_own():
    fixed = {"model": NORM, "epochs": 3, "batch_size": 8}
    inner = {"rule": "sgd", "lr": 0.02}
    specs = [
        {"rule": "ema", "inner": inner, "decay": 0.9},
        {"rule": "ema", "inner": inner, "decay": 0.0},
        inner,
    ]
    mean, last, plain = (
        done.arrays
        for done in train_all(
            [train_member(images(), rule=spec, **fixed) for spec in specs]
        )
    )
    size = int(plain["num_parameters"])
    ends = [arrays["weights"][-1] for arrays in (mean, last, plain)]
    np.testing.assert_allclose(ends[1][:size], ends[2][:size], rtol=1e-9, atol=1e-12)
    assert not np.allclose(ends[0][:size], ends[2][:size], rtol=1e-3)
    assert not np.allclose(ends[1][size:], ends[2][size:], rtol=1e-3)
    stepped_from = mean["rule_state"][-size:]
    np.testing.assert_allclose(stepped_from, ends[2][:size], rtol=1e-9, atol=1e-12)


def test_work_is_that_of_the_rule_within():
    inner = {"rule": "sam", "inner": SGD}
    (done, _) = train_all(
        [train_member(blobs(), rule={"rule": "ema", "inner": inner}, epochs=3)] * 2
    )
    assert done.arrays["num_gradients"] == 6
