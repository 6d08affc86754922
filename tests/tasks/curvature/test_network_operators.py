"""Weights as they are brought to the device."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.nodes import Weights
from curvflow.tasks.curvature.network_operators import stacked_weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine
from tests.tasks.toys import blobs, member


def brought(change):
    problem = pose(Linear(), "cross_entropy", blobs())
    weights = np.zeros(problem.network.num_parameters)
    weights[:2] = change
    arrays = {"weights": weights, "network": np.array(problem.text)}
    node = Weights("fit", "train", {}, arrays, "weights")
    probe = member("probe.trace", {}, weights=node, data=blobs())
    return stacked_weights([probe], Machine("cpu"), dtype="float64")


@pytest.mark.parametrize("change", [[np.nan, 0], [np.inf, 0], [np.inf, -np.inf]])
def test_weights_that_are_not_finite_are_refused(change):
    with pytest.raises(InputError, match="finite"):
        brought(change)


def test_finite_weights_are_taken_also_where_their_sum_is_infinite():
    assert brought([1e308, 1e308])[0, :2].tolist() == [1e308, 1e308]
