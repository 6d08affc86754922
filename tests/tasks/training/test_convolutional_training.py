"""Training of convolutional networks with batch norms and dropout, and what follows."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError, Stopped
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.kinds.shared.trained import CURVES
from curvflow.schemas.nodes import NodeData
from curvflow.tasks.networks.problems import read
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.train import member_bytes
from tests.tasks.models.examples import vgg
from tests.tasks.partials import Steps
from tests.tasks.toys import (
    ADAM,
    SGD,
    as_data,
    assert_declared,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    weights_of,
)

NORM = {"kind": "vgg", "stages": [[2, 2], [3]], "batch_norm": True}
DROPOUT = {"kind": "vgg", "stages": [[2]], "hidden": [5], "dropout": 0.4}
BOTH = {**NORM, "hidden": [5], "dropout": 0.4}
RESIDUAL = {"kind": "preresnet", "depth": 8, "width": 0.125}
LENET = {"kind": "lenet5", "padding": 6, "dropout": 0.2}
MODELS = {
    "norm": NORM,
    "dropout": DROPOUT,
    "both": BOTH,
    "residual": RESIDUAL,
    "lenet5": LENET,
}
every = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def images(num_samples=20, num_test=7):
    rng = np.random.default_rng(0)
    y = np.arange(num_samples + num_test) % 3
    x = rng.normal(size=(len(y), 1, 4, 4)) + y[:, None, None, None]
    parts = x[num_test:], y[num_test:], x[:num_test], y[:num_test]
    return as_data(dataset(*parts), "images")


def tile(model, epochs=3, rules=(SGD, ADAM), **settings):
    fixed = {"batch_size": 8, "checkpoints": {"every": 1}, **settings}
    return [
        train_member(
            images(),
            model=model,
            rule={**rule, "lr": 0.02},
            seed=seed,
            epochs=epochs,
            **fixed,
        )
        for seed, rule in enumerate(rules)
    ]


PARTS = ("epoch", *CURVES, "checkpoint", "weights", "network", "rule_state")


def assert_close(result, expected, rtol=1e-8):
    for first, other in zip(result, expected, strict=True):
        assert first.status == other.status == "ok"
        for name in PARTS:
            if first.arrays[name].dtype.kind == "f":
                np.testing.assert_allclose(
                    first.arrays[name], other.arrays[name], rtol=rtol, atol=1e-10
                )


def assert_equal(result, expected):
    for first, other in zip(result, expected, strict=True):
        assert first.arrays.keys() == other.arrays.keys()
        for name, array in first.arrays.items():
            assert array.tobytes() == other.arrays[name].tobytes(), name


@every
def test_members_together_are_what_each_is_alone(model):
    members = tile(model, rules=(SGD, SGD, ADAM))
    together = train_all(members)
    assert_declared("train", together[0])
    assert_close(together, [train_all([probed])[0] for probed in members])


@every
def test_training_stopped_and_resumed_equals_training_in_one_go(model):
    members = tile(model, epochs=2)
    compute_tile = find("train").compute
    whole = Steps()
    expected = compute_tile(members, Machine("cpu", whole))
    for stop in (1, 3, whole.count - 1):
        before = Steps(stop=stop)
        with pytest.raises(Stopped):
            compute_tile(members, Machine("cpu", before))
        after = Steps(before.kept)
        assert_equal(compute_tile(members, Machine("cpu", after)), expected)
        assert before.count + after.count == whole.count


@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_longer_training_goes_on_from_shorter(model, dtype):
    expected = train_all(tile(model, epochs=4, dtype=dtype))
    shorter = train_all(tile(model, epochs=2, dtype=dtype))
    longer = [
        replace(
            trained,
            earlier=NodeData(
                "fit",
                "train",
                {},
                {name: end.arrays[name] for name in PARTS},
                "d",
                end.status,
                end.reason,
            ),
        )
        for trained, end in zip(
            tile(model, epochs=4, dtype=dtype), shorter, strict=True
        )
    ]
    assert_equal(train_all(longer), expected)


def test_training_with_a_batch_norm_is_that_of_a_plain_loop():
    data = images()
    trained = tile(NORM, epochs=6, rules=(SGD,), batch_size=None)[0]
    outcome = train_all([trained, trained])[0]
    problem = read(str(outcome.arrays["network"]))
    weights = torch.as_tensor(outcome.arrays["weights"])
    twin = vgg((2, 2), (3,), channels=1, norm=True, dense=nn.Linear(3, 3))()
    first = problem.network.split(weights[0])[0]
    nn.utils.vector_to_parameters(first, twin.parameters())
    steps = torch.optim.SGD(twin.parameters(), lr=0.02, momentum=0.9)
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    for _ in range(6):
        steps.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        steps.step()
    kept = [b.flatten() for n, b in twin.named_buffers() if "running" in n]
    final = torch.cat([p.detach().flatten() for p in twin.parameters()] + kept)
    torch.testing.assert_close(weights[-1], final, rtol=1e-9, atol=1e-10)
    loss = nn.functional.cross_entropy(twin.eval()(x), y).item()
    assert outcome.arrays["final_train_loss"] == pytest.approx(loss, rel=1e-9)


def test_an_average_has_statistics_where_a_batch_that_is_left_out_has_none():
    averaged = {"rule": "swa", "start": 1}
    # Twenty samples leave one over, and the last stage has one pixel.
    members = tile(RESIDUAL, rules=(averaged, averaged), batch_size=19, drop_last=True)
    assert [outcome.status for outcome in train_all(members)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("parts", "bounds"), [(1, (0, 10, 20)), (3, (0, 3, 6, 10, 13, 16, 20))]
)
def test_an_average_of_weights_has_the_statistics_of_the_training_data(parts, bounds):
    data = images()
    averaged = {"rule": "swa", "start": 2, "momentum": 0.9}
    split = {"batch_size": 10, "accumulation": parts}
    members = tile(NORM, epochs=4, rules=(averaged, SGD), **split)
    outcome, plain = train_all(members)
    problem = read(str(outcome.arrays["network"]))
    weights = torch.as_tensor(outcome.arrays["weights"][-1])
    parameters, statistics = problem.network.split(weights)
    # Batches, or their parts, one after another, each with as much weight as another.
    twin = vgg((2, 2), (3,), channels=1, norm=True, dense=nn.Linear(3, 3))()
    nn.utils.vector_to_parameters(parameters, twin.parameters())
    for module in twin.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # torch's cumulative average
            module.reset_running_stats()
    x = torch.as_tensor(data["inputs"])
    for start, stop in pairwise(bounds):
        twin.train()(x[start:stop])
    kept = [b.flatten() for n, b in twin.named_buffers() if "running" in n]
    torch.testing.assert_close(statistics, torch.cat(kept), rtol=1e-9, atol=1e-11)
    # A rule without an average beside it keeps the running ones.
    alone = train_all([members[1]] * 2)[0]
    assert_close([plain], [alone])


@every
def test_probes_take_its_weights(model):
    data = images()
    fits = train_all(tile(model, epochs=2))
    norms = compute(
        "probe.norms", [member("probe.norms", weights=weights_of(f)) for f in fits]
    )
    for fit, norm in zip(fits, norms, strict=True):
        assert norm.arrays["norm_l2"] == pytest.approx(
            float(fit.arrays["norm_l2"][-1]), rel=1e-12
        )
    traces = [
        member(
            "probe.hessian_trace", {"num_probes": 40}, weights=weights_of(f), data=data
        )
        for f in fits
    ]
    for probe, outcome in zip(
        traces, compute("probe.hessian_trace", traces), strict=True
    ):
        assert outcome.status == "ok"
        if model != LENET:  # whose Hessian is large
            size = int(fits[0].arrays["num_parameters"])
            exact = dense_of(probe).diagonal()[:size].sum().item()
            sem = float(outcome.arrays["trace_sem"])
            assert abs(float(outcome.arrays["trace"]) - exact) < 5 * sem


def test_path_norms_are_there_but_for_batch_norms():
    for model, has_paths in ((DROPOUT, True), (NORM, False), (LENET, True)):
        outcome = train_all(tile(model, epochs=1))[0]
        assert np.isfinite(outcome.arrays["path_norm"]).all() == has_paths


def test_dropout_acts_in_training_alone():
    still = {"kind": "vgg", "stages": [[2]], "hidden": [5]}
    first = [
        train_all(tile(m, epochs=1))[0].arrays
        for m in (still, {**still, "dropout": 0.5})
    ]
    assert first[0]["train_loss"][0] == first[1]["train_loss"][0]
    assert first[0]["train_loss"][1] != first[1]["train_loss"][1]


def test_memory_is_estimated_by_the_activations():
    small, large = (
        member_bytes(tile({**NORM, "width": width})[0]) for width in (1.0, 8.0)
    )
    assert large > 4 * small


def test_images_that_are_flattened_are_refused():
    data = images()
    flat = as_data({**data.arrays, "inputs": data["inputs"].reshape(20, 16)})
    with pytest.raises(InputError, match=r"for vgg, got inputs of shape \(16,\)"):
        train_all([train_member(flat, model=NORM)] * 2)
