"""Trained networks and their factors, for the tests of probes."""

from functools import cache

import numpy as np

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Factors
from tests.tasks.toys import (
    as_data,
    blobs,
    compute,
    member,
    train_all,
    train_member,
    waves,
    weights_of,
)

TOKENS = {
    "kind": "transformer", "layers": 1, "width": 4, "heads": 2, "hidden": 3,
    "vocabulary": 5,
}  # fmt: skip
NETS = {
    "labels": ({"kind": "mlp", "hidden": [4], "activation": "tanh"}, blobs),
    "values": ({"kind": "mlp", "hidden": [4], "activation": "relu"}, waves),
    "tokens": (TOKENS, lambda: sequences()),
    "frozen": ({"factory": "tests.tasks.toys:make_frozen_first"}, blobs),
}


def counts():
    return as_data(
        {**waves().arrays, "targets": np.round(3 * np.abs(waves()["targets"]))},
        "counts",
    )


def masked():
    data = sequences()
    labels = data["targets"].copy()
    labels[::2, 1] = -100
    return as_data({**data.arrays, "targets": labels}, "masked")


TANH = {"kind": "mlp", "hidden": [4], "activation": "tanh"}
# Of each loss the operator that all roots give, and what is done where indefinite.
LOSSES = {
    "poisson": (TANH, counts, "ggn", "refuse"),
    "huber": (TANH, waves, "ggn", "clip"),
    "gaussian": (TANH, waves, "fisher_type2", "fisher"),
    "masked": (TOKENS, masked, "ggn", "refuse"),
}
OPERATORS = {"type-2": "ggn", "mc": "fisher_mc", "empirical": "fisher_empirical"}


def sequences(count=12):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 5, size=(count, 4)).astype(np.int64)
    labels = rng.integers(0, 3, size=(count, 4)).astype(np.int64)
    return as_data(dataset(tokens, labels), "tokens")


@cache
def trained(name):
    model, data, *_ = {**NETS, **LOSSES}[name]
    loss = name if name in ("poisson", "huber", "gaussian") else "auto"
    given = data()
    outcomes = train_all(
        [train_member(given, model=model, loss=loss, seed=s) for s in (0, 1)]
    )
    return given, [weights_of(outcome) for outcome in outcomes]


def probed(name, kind="probe.factors", **params):
    """Return the outcome of a probe for the first network."""
    data, (weights, _) = trained(name)
    one = member(kind, params, weights=weights, data=data)
    return compute(kind, [one, one])[0]


def as_factors(outcome, params=None):
    return Factors("factors", "probe.factors", params or {}, outcome.arrays, "f")
