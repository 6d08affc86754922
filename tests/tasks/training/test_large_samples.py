"""Samples and vectors that are large, a few at a time, against all of them at once."""

import numpy as np
import pytest

from curvflow.schemas.models import parse_model
from curvflow.tasks.curvature import operators
from curvflow.tasks.llc import losses, observed
from curvflow.tasks.networks import problems
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.train import member_bytes
from curvflow.tasks.training import cache_blocks
from tests.tasks.test_tokens import text
from tests.tasks.toys import as_data, compute, member, train_all, train_member
from tests.tasks.toys import weights_of as fit_of

EXACT = {"rtol": 1e-10, "atol": 1e-12}
DECODER = {"kind": "transformer", "layers": 1, "width": 4, "heads": 2, "dropout": 0.2}
WEIGHTED = {
    "kind": "cross_entropy",
    "label_smoothing": 0.1,
    "class_weights": [1.0, 2.0, 0.5, 1.0, 3.0],
}
LLC = {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-4,
    "localization": 10.0,
    "num_chains": 2,
    "num_draws": 8,
    "num_burnin_steps": 2,
    "num_steps_bw_draws": 2,
    "batch_size": 6,
}
PRODUCTS = {
    "probe.trace": {"num_probes": 5, "method": "hutchinson"},
    "probe.diagonal": {"num_probes": 5, "operator": "ggn"},
}


def some_ignored():
    data = text()
    labels = data["targets"].copy()
    labels[::2, 1] = -100
    return as_data({**{name: data[name] for name in data.arrays}, "targets": labels})


def all_of(data, model, loss):
    """Return what a study computes: training, products, coefficients, token losses."""
    nodes = [
        train_member(
            data, model=model, loss=loss, epochs=2, batch_size=8, dtype="float64",
            seed=seed,
        )
        for seed in (0, 1)
    ]  # fmt: skip
    fits = train_all(nodes)
    found = {"train": fits[0].arrays}
    keeps = "tokens" if loss == "auto" and data["targets"].min() >= 0 else "samples"
    for kind, params in {**PRODUCTS, "probe.llc": LLC | {"keep_losses": keeps}}.items():
        probes = [member(kind, params, weights=fit_of(fit), data=data) for fit in fits]
        found[kind] = compute(kind, probes)[0].arrays
    return found


@pytest.mark.parametrize(
    ("data", "model", "loss"),
    [
        (text(), DECODER, "auto"),
        (text(), {**DECODER, "tied": True}, WEIGHTED),
        (some_ignored(), DECODER, "auto"),
    ],
    ids=["untied", "tied-smoothed-weighted", "ignored"],
)
def test_a_few_samples_and_vectors_at_a_time_give_the_same(
    monkeypatch, data, model, loss
):
    whole = all_of(data, model, loss)
    network = pose(parse_model(model), "auto", data).network
    each = 8 * network.width
    with monkeypatch.context() as patch:
        patch.setattr(cache_blocks, "LARGE", 1)
        patch.setattr(cache_blocks, "ROWS_BYTES", 3 * each)
        patch.setattr(problems, "PASS_BYTES", 1)
        patch.setattr(problems, "MANY_PARAMETERS", 1)
        most = -(-6 * network.width // network.num_parameters)  # two samples
        patch.setattr(problems, "PASS_VECTORS", most)
        patch.setattr(operators, "BLOCK_BYTES", 2 * 8 * network.num_parameters)
        for room in (losses, observed):
            patch.setattr(room, "CHAIN_BYTES", each)
        parts = all_of(data, model, loss)
    for kind, arrays in whole.items():
        for name, expected in arrays.items():
            if expected.dtype.kind != "U":
                np.testing.assert_allclose(
                    parts[kind][name], expected, **EXACT, err_msg=f"{kind} {name}"
                )


def test_large_samples_are_counted_as_they_are_computed(monkeypatch):
    node = train_member(text(), model=DECODER, batch_size=12)
    network = pose(parse_model(DECODER), "auto", text()).network
    monkeypatch.setattr(cache_blocks, "LARGE", 1)
    counted = []
    for rows in (12, 6, 3):
        monkeypatch.setattr(cache_blocks, "ROWS_BYTES", rows * 8 * network.width)
        counted.append(member_bytes(node))
    steps = -np.diff(counted)
    # Two numbers for each activation of a pass of two models, by half for each.
    np.testing.assert_array_equal(
        steps, [6 * 16 * network.width, 3 * 16 * network.width]
    )
