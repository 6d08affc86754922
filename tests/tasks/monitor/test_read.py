"""Numbers of a monitor are read from its file, and other files refused."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from tests.tasks.toys import assert_declared, compute, member

STEPS = np.array([100, 200, 300])
FILE = {
    "step": STEPS,
    "sharpness": np.array([1.0, 2.0, np.nan]),
    "postponed": np.array([0, 2, 1]),
    "layer": np.array(["weight", "bias"]),
    "layer_update_ratio": np.ones((3, 2)),
    "identity": np.array("{}"),
}


def checked(arrays):
    node = replace(
        member("monitor.read", {"path": "monitor.npz"}), files={"path": arrays}
    )
    find_kind("monitor.read").check(node.params, node.files)
    (outcome,) = compute("monitor.read", [node])
    assert_declared("monitor.read", outcome)
    return outcome.arrays


def test_variables_are_taken_as_they_are_and_counted():
    actual = checked(FILE)
    np.testing.assert_array_equal(actual["sharpness"], FILE["sharpness"])
    assert actual["layer_update_ratio"].shape == (3, 2)
    assert (actual["num_measurements"], actual["num_postponed"]) == (3, 3)
    assert "identity" not in actual


def test_coefficients_are_flagged_by_their_verdicts():
    words = np.array(["converged", "drifting", "failed"])
    estimates = {"llc_step": STEPS, "llc_mean": np.ones(3), "llc_verdict": words}
    actual = checked({**FILE, **estimates})
    assert actual["llc_converged"].tolist() == [True, False, False]
    assert "llc_converged" not in checked(FILE)


@pytest.mark.parametrize("name", ["step", "identity"])
def test_files_of_others_are_refused_while_planning(name):
    arrays = {other: array for other, array in FILE.items() if other != name}
    with pytest.raises(InputError) as caught:
        checked(arrays)
    assert f"got one without '{name}', with" in str(caught.value)
