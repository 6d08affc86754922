"""Every learning rule goes on bit for bit from where it was stopped."""

import numpy as np
import pytest

from curvflow.errors import Stopped
from curvflow.tasks.registry import Machine, find
from tests.tasks.partials import Steps
from tests.tasks.rules.test_all import CASES, members

STOPPED_AT = 7  # of three epochs of four or three steps


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_rule_that_is_stopped_goes_on_bit_for_bit(name, settings):
    compute, tile = find("train").compute, members(name, settings)
    place = Steps(stop=STOPPED_AT)
    with pytest.raises(Stopped):
        compute(tile, Machine(partial=place))
    outcomes = compute(tile, Machine(partial=Steps(place.kept)))
    for outcome, other in zip(outcomes, compute(tile, Machine()), strict=True):
        assert outcome.status == other.status == "ok"
        for variable, array in outcome.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[variable])
