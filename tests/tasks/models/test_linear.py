"""Linear regression."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks.toys import train_all, train_member, waves


@pytest.mark.parametrize(("bias", "expected"), [(True, 8), (False, 6)])
def test_it_has_one_layer(bias, expected):
    spec = parse_model({"kind": "linear", "bias": bias})
    assert pose(spec, "mse", waves()).network.num_parameters == expected


def test_training_finds_the_least_squares_solution():
    data = waves()
    member = train_member(
        data,
        model={"kind": "linear", "bias": False},
        rule={"rule": "sgd", "lr": 0.3},
        epochs=800,
    )
    outcome = train_all([member, member])[0]
    solution = np.linalg.lstsq(data["inputs"], data["targets"], rcond=None)[0]
    actual = torch.as_tensor(outcome.arrays["weights"][-1]).reshape(2, 3).T.numpy()
    np.testing.assert_allclose(actual, solution, rtol=1e-8)
