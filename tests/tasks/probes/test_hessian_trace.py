"""The Hessian trace of networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import read
from curvflow.tasks.probes.hessian_trace import member_bytes
from curvflow.tasks.registry import Machine, find
from tests.tasks.probes.checks import DATA, probes
from tests.tasks.toys import assert_declared, compute, dense_of

KIND = "probe.hessian_trace"


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_traces_are_within_five_standard_errors_of_the_dense_trace(case, law, seed):
    members = probes(KIND, case, 2, num_probes=200, distribution=law, seed=seed)
    for member, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        diagonal = dense_of(member).diagonal()
        arrays = outcome.arrays
        error = abs(arrays["trace"] - diagonal.sum().item())
        assert error < 5 * arrays["trace_sem"]
        layout = read(str(member.one("weights")["network"])).network.layout
        exact = np.array([part.sum().item() for part in diagonal.split(layout.sizes)])
        # The block of the last bias is diagonal for mse: no spread, only rounding.
        slack = 5 * arrays["layer_trace_sem"] + 1e-10
        assert (np.abs(arrays["layer_trace"] - exact) < slack).all()
        assert arrays["layer"].tolist() == list(layout.names)


def test_the_mean_and_the_error_are_those_of_the_draws():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2, num_probes=50))[0].arrays
    draws = arrays["trace_draws"]
    assert draws.shape == (50,)
    assert arrays["trace"] == pytest.approx(draws.mean(), rel=1e-12)
    # As all products tell it, which 50 draws do to one part in ten.
    assert arrays["trace_sem"] == pytest.approx(draws.std(ddof=1) / 50**0.5, rel=0.3)
    half = 2.05 * arrays["trace_sem"]
    assert arrays["trace_low"] == pytest.approx(arrays["trace"] - half, rel=0.03)
    assert arrays["trace_high"] == pytest.approx(arrays["trace"] + half, rel=0.03)
    assert arrays["layer_trace"].sum() == pytest.approx(arrays["trace"], rel=1e-12)
    assert arrays["num_matvecs"] == 50


def test_results_do_not_depend_on_the_width_of_the_tile():
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(probes(KIND, "tanh-ce", 5))
    ]
    reference = compute(KIND, members)
    for width in (2, 3):
        for result, expected in zip(
            compute(KIND, members[:width]), reference, strict=False
        ):
            for name in ("trace_draws", "layer_trace", "layer_trace_sem"):
                np.testing.assert_allclose(
                    result.arrays[name], expected.arrays[name], rtol=1e-10, atol=1e-12
                )


def test_two_calls_are_bitwise_equal():
    first, second = (compute(KIND, probes(KIND, "relu-ce", 3))[1] for _ in range(2))
    assert np.array_equal(first.arrays["trace_draws"], second.arrays["trace_draws"])


def test_single_precision_agrees_to_its_rounding():
    single, double = (
        compute(KIND, probes(KIND, "tanh-ce", 2, dtype=dtype))[0].arrays["trace"]
        for dtype in ("float32", "float64")
    )
    assert single == pytest.approx(double, rel=1e-4)
    assert single != double


def test_weights_that_are_not_finite_are_refused():
    (probed,) = probes(KIND, "tanh-ce", 1)
    weights = probed.one("weights")
    broken = {**weights.arrays, "weights": weights["weights"] * np.nan}
    inputs = {**probed.inputs, "weights": [replace(weights, arrays=broken)]}
    with pytest.raises(InputError, match="weights: expected finite numbers"):
        compute(KIND, [replace(probed, inputs=inputs)] * 2)


def test_networks_of_several_shapes_are_probed_side_by_side():
    mixed = probes(KIND, "tanh-ce", 2) + probes(KIND, "tanh-mse", 1)
    result = compute(KIND, mixed)
    alone = compute(KIND, probes(KIND, "tanh-mse", 1) * 2)[0]
    assert np.array_equal(result[2].arrays["trace_draws"], alone.arrays["trace_draws"])


def test_golden_numbers():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2))[0].arrays
    result = [float(arrays["trace"]), float(arrays["trace_sem"])]
    np.testing.assert_allclose(result, GOLDEN, rtol=1e-8)


GOLDEN = [4.992396161514889, 0.4969434032255567]


def test_memory_is_estimated_above_the_vectors_alone():
    (probed,) = probes(KIND, "tanh-ce", 1)
    assert 16 * 45 * 8 < member_bytes(probed) < 10**7


def test_memory_holds_the_data_twice():
    (probed,) = probes(KIND, "tanh-ce", 1, num_probes=2)
    data = probed.one("data")
    tall = np.repeat(data["inputs"], 1000, axis=1)
    inputs = {
        **probed.inputs,
        "data": [replace(data, arrays={**data.arrays, "inputs": tall})],
    }
    more = member_bytes(replace(probed, inputs=inputs)) - member_bytes(probed)
    assert more == 2 * (tall.nbytes - data["inputs"].nbytes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_draws():
    members = probes(KIND, "tanh-ce", 3)
    on_gpu = find(KIND).compute(members, Machine("cuda:0"))
    for a, b in zip(on_gpu, compute(KIND, members), strict=True):
        np.testing.assert_allclose(
            a.arrays["trace_draws"], b.arrays["trace_draws"], rtol=1e-9
        )
