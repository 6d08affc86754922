"""Chains about whole networks, and about a few of their tensors."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, linear, relu

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Weights
from curvflow.tasks.networks.problems import pose, read
from tests.tasks.known import PRODUCT, at_truth
from tests.tasks.toys import as_data, compute, dense_of, member

KIND = "probe.llc"
SETTINGS = {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-4,
    "localization": 1.0,
    "num_burnin_steps": 5,
    "num_draws": 8,
    "num_chains": 2,
    "keep_draws": True,
}


def about(model, inputs, classes=3, **params):
    """A probe about random weights, statistics of no data among them."""
    labels = np.arange(len(inputs)) % classes
    data = as_data(dataset(inputs, labels, inputs[:2], labels[:2]))
    problem = pose(parse_model(model), "cross_entropy", data)
    network, random = problem.network, np.random.default_rng(1)
    parameters = 0.3 * random.normal(size=network.num_parameters)
    kept = random.uniform(0.5, 1.5, size=network.statistics.size)
    arrays = {
        "weights": np.concatenate([parameters, kept]),
        "network": np.array(problem.text),
    }
    weights = Weights("fit", "train", {}, arrays, "w")
    return member(KIND, SETTINGS | params, weights=weights, data=data), parameters, kept


def test_dropout_is_off_where_chains_walk():
    inputs = np.random.default_rng(0).normal(size=(12, 4))
    model = {"kind": "mlp", "hidden": [5], "activation": "relu", "dropout": 0.5}
    one, first, _ = about(model, inputs)
    (outcome,) = compute(KIND, [one])

    def loss(weights):
        w = torch.as_tensor(weights).split([20, 5, 15, 3])
        x, labels = torch.as_tensor(inputs), torch.arange(12) % 3
        hidden = relu(linear(x, w[0].view(5, 4), w[1]))
        return float(cross_entropy(linear(hidden, w[2].view(3, 5), w[3]), labels))

    assert outcome.arrays["init_loss"] == pytest.approx(loss(first), rel=1e-12)
    found = [[loss(w) for w in chain] for chain in outcome.arrays["draws"]]
    np.testing.assert_allclose(outcome.arrays["loss_trace"], found, rtol=1e-12)


def test_statistics_of_batch_norms_stay_as_they_were_trained():
    inputs = np.random.default_rng(0).normal(size=(6, 1, 8, 8))
    model = {"kind": "preresnet", "depth": 8, "width": 0.125}
    one, first, kept = about(model, inputs, batch_size=3)
    assert len(kept)
    (outcome,) = compute(KIND, [one])
    network = read(str(one.one("weights")["network"])).network
    labels = torch.arange(6) % 3

    def loss(weights):
        whole = torch.as_tensor(np.concatenate([weights, kept]))[None]
        outputs = network.outputs(whole, torch.as_tensor(inputs)[None])
        return float(cross_entropy(outputs[0], labels))

    assert outcome.arrays["draws"].shape[2] == outcome.arrays["num_parameters"]
    assert outcome.arrays["init_loss"] == pytest.approx(loss(first), rel=1e-10)
    found = [[loss(w) for w in chain] for chain in outcome.arrays["draws"]]
    np.testing.assert_allclose(outcome.arrays["loss_trace"], found, rtol=1e-10)


@pytest.mark.parametrize(("layers", "value"), [("layer1.*", 5), ("layer2.*", 4)])
def test_the_coefficient_of_some_tensors_is_that_of_their_part_of_the_hessian(
    layers, value
):
    # A product of matrices is quadratic in each. Where the other has rank 2 of 3, two
    # thirds of its directions are regular: half of 2 times the 5 inputs or 4 outputs.
    data, weights = at_truth(PRODUCT, inputs=5, outputs=4, rank=2)
    how = {"nbeta": 1e4, "num_draws": 600, "layers": [layers], "keep_draws": True}
    how |= {"num_burnin_steps": 500, "num_steps_bw_draws": 6}
    one = member(KIND, how, weights=weights, data=data)
    (outcome,) = compute(KIND, [one])
    found = outcome.arrays
    moves = np.repeat([layers == "layer1.*", layers == "layer2.*"], [15, 12])
    part = dense_of(one).numpy()[np.ix_(moves, moves)]
    steep = 1e4 * np.linalg.eigvalsh(part).clip(min=0)
    expected = (steep / (steep + found["localization"])).sum() / 2
    assert expected == pytest.approx(value, rel=0.01)
    assert found["verdict"] == "converged", found["reason"]
    assert abs(found["llc_mean"] - expected) < 4 * found["llc_sem"] < 0.1 * value
    assert found["num_parameters"] == moves.sum()
    rests = found["draws"][..., ~moves] == weights["weights"][~moves]
    assert rests.all()
    assert (found["draws"][..., moves].std(1) > 0).all()


def about_labels(inputs, labels, first, digest):
    """A probe about given weights, of the temperature that is the default."""
    data = as_data(dataset(inputs, labels), digest)
    problem = pose(parse_model({"kind": "mlp", "hidden": [4]}), "cross_entropy", data)
    arrays = {"weights": first, "network": np.array(problem.text)}
    weights = Weights("fit", "train", {}, arrays, "w")
    settings = SETTINGS | {"nbeta": "auto", "seed": 5}
    return member(KIND, settings, weights=weights, data=data)


@pytest.mark.parametrize("seed", range(6))
def test_samples_without_a_label_that_counts_are_no_observations(seed):
    draw = np.random.default_rng(seed)
    masked, apart, counts = [], [], []
    for number in range(3):
        inputs, labels = draw.normal(size=(15, 4)), np.arange(15) % 3
        first = draw.normal(size=35)
        kept = np.sort(draw.permutation(np.arange(3, 15))[number + seed :])
        kept = np.concatenate([np.arange(3), kept])
        hidden = np.where(np.isin(np.arange(15), kept), labels, -100)
        masked.append(about_labels(inputs, hidden, first, f"{number}"))
        apart.append(about_labels(inputs[kept], labels[kept], first, ""))
        counts.append(len(kept))
    # In one tile, each with the number of its own.
    for number, outcome in enumerate(compute(KIND, masked)):
        (alone,) = compute(KIND, [apart[number]])
        found, expected, n = outcome.arrays, alone.arrays, counts[number]
        assert found["num_samples"] == expected["num_samples"] == n
        assert found["nbeta"] == expected["nbeta"] == n / np.log(n)
        for name in ("init_loss", "loss_trace", "llc_mean"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-8)
