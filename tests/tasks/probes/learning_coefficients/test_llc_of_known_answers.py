"""Sampled learning coefficients against known ones."""

import numpy as np
import pytest

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Weights
from curvflow.tasks.networks.problems import pose
from tests.tasks.known import PRODUCT, WELL, at_truth
from tests.tasks.toys import as_data, compute, member

NBETA, SIZE = 1e4, 6


def regular(seed):
    """A linear regression of mean loss 1/2 sum h w^2, sampled about its minimum."""
    h = 10 ** np.random.default_rng(seed).uniform(-1, 1, SIZE)
    inputs = np.diag(np.sqrt(SIZE * h / 2))
    data = as_data(dataset(inputs, np.zeros((SIZE, 1))), f"regular{seed}")
    problem = pose(parse_model({"kind": "deep_linear", "hidden": []}), "sse", data)
    taken = {"weights": np.zeros(SIZE), "network": np.array(problem.text)}
    weights = Weights("truth", "weights.known_answer", {}, taken, "w")
    settings = {"nbeta": NBETA, "localization": 300.0, "seed": seed}
    settings |= {"num_burnin_steps": 500, "num_steps_bw_draws": 3}
    return h, member("probe.llc", settings, weights=weights, data=data)


def test_twenty_regular_models_have_half_their_effective_dimensions():
    spectra, members = zip(*map(regular, range(20)), strict=True)
    off = []
    for h, outcome in zip(spectra, compute("probe.llc", members), strict=True):
        got = outcome.arrays
        expected = 0.5 * (NBETA * h / (NBETA * h + got["localization"])).sum()
        off.append((got["llc_mean"] - expected) / got["llc_sem"])
    # Of twenty normal numbers all but three are below 2 with probability 0.99.
    assert np.sum(np.abs(off) < 2) >= 17
    assert np.abs(off).max() < 4
    assert abs(np.mean(off)) < 3 / len(off) ** 0.5


@pytest.mark.parametrize(
    ("model", "settings", "value"),
    [
        (WELL, {}, 1),
        ({"kind": "normal_crossing", "powers": [[1, 2], [1], [2]]}, {}, 1),
        (PRODUCT, {"inputs": 5, "outputs": 4, "rank": 2}, 8),
    ],
)
def test_models_of_known_answer_have_it(model, settings, value):
    data, weights = at_truth(model, **settings)
    asked = {"nbeta": NBETA, "num_draws": 600, "num_steps_bw_draws": 2}
    asked["num_burnin_steps"] = 500
    got = compute("probe.llc", [member("probe.llc", asked, weights=weights, data=data)])
    found = got[0].arrays
    near = max(0.05 * value, 3 * found["llc_sem"])
    assert abs(found["llc_mean"] - value) < near
