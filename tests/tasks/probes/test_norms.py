"""Norms of the weights."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from tests.tasks.probes.checks import fits, probes
from tests.tasks.toys import assert_declared, compute

KIND = "probe.norms"


def test_norms_are_those_of_the_tensors():
    members = probes(KIND, "tanh-ce", 3)
    for member, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        weights = member.one("weights")["weights"]
        pieces = np.split(weights, np.cumsum([18, 6, 18]))
        norms = [np.linalg.norm(piece) for piece in pieces]
        arrays = outcome.arrays
        np.testing.assert_allclose(arrays["layer_norm"], norms, rtol=1e-12)
        assert arrays["norm_tensor_sum"] == pytest.approx(sum(norms), rel=1e-12)
        assert arrays["norm_l2"] == pytest.approx(np.linalg.norm(weights), rel=1e-12)
        assert arrays["max_abs"] == np.abs(weights).max()


def test_they_agree_with_what_training_recorded():
    for fit, outcome in zip(
        fits("tanh-ce"), compute(KIND, probes(KIND, "tanh-ce")), strict=True
    ):
        for probed, recorded in (
            ("norm_l2", "final_norm_l2"),
            ("norm_tensor_sum", "norm_tensor_sum"),
        ):
            assert outcome.arrays[probed] == pytest.approx(
                float(fit.arrays[recorded]), rel=1e-12
            )


def test_results_do_not_depend_on_the_width_of_the_tile():
    reference = compute(KIND, probes(KIND, "relu-ce", 5))
    for result, expected in zip(
        compute(KIND, probes(KIND, "relu-ce", 2)), reference, strict=False
    ):
        for name in ("norm_l2", "layer_norm", "norm_tensor_sum"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-12
            )


def test_weights_that_are_not_finite_are_refused():
    (probed,) = probes(KIND, "tanh-ce", 1)
    weights = probed.one("weights")
    broken = {**weights.arrays, "weights": weights["weights"] + np.inf}
    inputs = {"weights": [replace(weights, arrays=broken)]}
    with pytest.raises(
        InputError, match="expected finite numbers, got NaN or infinity"
    ):
        compute(KIND, [replace(probed, inputs=inputs)] * 2)
