"""Training on another device than the CPU."""

import numpy as np
import pytest

from curvflow.tasks.registry import Machine, find
from tests.tasks.elsewhere import ELSEWHERE, elsewhere
from tests.tasks.toys import ADAM, SGD, blobs, compute, train_member

NGD = {"rule": "ngd", "lr": 0.1, "norm_match": True}
RULES = [
    SGD,
    ADAM,
    NGD | {"fisher": "sampled"},
    NGD | {"fisher": "exact"},
    NGD | {"fisher": "empirical", "fisher_batch": 4},
    {"rule": "ngd_online", "lr": 0.1},
]


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: "-".join(map(str, rule.values()))
)
def test_training_ends_alike_elsewhere(rule):
    members = [
        train_member(blobs(), seed=seed, rule=rule, batch_size=7, epochs=2)
        for seed in range(2)
    ]
    here = compute("train", members)
    with elsewhere():
        away = find("train").compute(members, Machine(str(ELSEWHERE)))
    for a, b in zip(away, here, strict=True):
        assert np.isfinite(b.arrays["weights"]).all()
        np.testing.assert_array_equal(a.arrays["weights"], b.arrays["weights"])
