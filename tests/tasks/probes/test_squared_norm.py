"""The squared Frobenius norm of curvature operators."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.squared_norm import SquaredNormParams
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.probes.squared_norm import member_bytes
from curvflow.tasks.registry import find
from tests.tasks.probes.checks import probes
from tests.tasks.probes.test_trace import matrix
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.squared_norm"
PER = ["data", "batch"]
FEW = {
    "data": {"probes_per": "data"},
    "batch": {"probes_per": "batch", "batch_size": 3, "num_batches": 3},
}


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_norms_are_within_five_standard_errors_of_the_dense_ones(per, seed):
    members = probes(KIND, "tanh-ce", 2, num_probes=40, seed=seed, **FEW[per])
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        error = abs(arrays["squared_norm"] - dense_of(probed).square().sum().item())
        assert error < 5 * arrays["squared_norm_sem"]
        assert arrays["squared_norm_draws"].shape == (40,)
        assert arrays["num_matvecs"] == (40 if per == "data" else 40 * 9 // 30)


@pytest.mark.parametrize("per", PER)
def test_results_do_not_depend_on_the_width_of_the_tile(per):
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(
            probes(KIND, "tanh-ce", 4, num_probes=8, rel_sem=0.3, **FEW[per])
        )
    ]
    reference = compute(KIND, members)
    for result, expected in zip(compute(KIND, members[:2]), reference, strict=False):
        for name in ("squared_norm_draws", "squared_norm_sem", "num_matvecs"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-8, atol=1e-10
            )


def test_signs_see_the_norm_of_a_diagonal_matrix_exactly():
    of = matrix(torch.diag(torch.tensor([3.0, -4.0, 0.0, 1.0]).double()))
    members = [member(KIND, {"num_probes": 4}, matrix=of)] * 2
    assert compute(KIND, members)[0].arrays["squared_norm"] == 26


def test_a_matrix_has_no_batches():
    of = matrix(with_spectrum([1, 2], 0))
    with pytest.raises(InputError, match="expected a mean over samples"):
        compute(KIND, [member(KIND, {"probes_per": "batch"}, matrix=of)] * 2)


@pytest.mark.parametrize("operator", ["fisher_mc", "gradient_covariance"])
def test_what_is_no_mean_over_samples_is_refused_while_planning(operator):
    with pytest.raises(ValueError, match="cannot be combined with operator"):
        SquaredNormParams(probes_per="batch", operator=operator)


@pytest.mark.parametrize("operator", ["ggn", "fisher_empirical", "residual"])
def test_other_operators_agree_with_their_products_over_all_data(operator):
    given = {"operator": operator, "num_probes": 400}
    whole, batches = (
        compute(KIND, probes(KIND, "tanh-ce", 2, **given, **FEW[per]))[0] for per in PER
    )
    both = (whole.arrays, batches.arrays)
    error = np.hypot(*(arrays["squared_norm_sem"] for arrays in both))
    off = np.subtract(*(arrays["squared_norm"] for arrays in both))
    assert abs(off) < 5 * error


@pytest.mark.parametrize("size", [1, 8, 30])
@pytest.mark.parametrize("layers", [None, ["layer2.bias"]])
@pytest.mark.parametrize("kind", [KIND, "probe.trace"])
def test_memory_of_batches_is_as_estimated(kind, size, layers):
    given = {"probes_per": "batch", "batch_size": size, "layers": layers}
    members = probes(kind, "tanh-ce", 1, **given)
    counted = peak_bytes(lambda: compute(kind, members))
    assert counted < find(kind).member_bytes(members[0]) < 40 * counted


def test_batches_of_any_size_are_estimated_as_no_more_than_the_data():
    whole, beyond = (
        member_bytes(probes(KIND, "tanh-ce", 1, probes_per="batch", batch_size=n)[0])
        for n in (30, 10**7)
    )
    assert whole == beyond


@pytest.mark.parametrize("name", ["batch_size", "num_batches"])
def test_what_is_of_batches_is_refused_without_them(name):
    with pytest.raises(ValueError, match="cannot be combined with probes_per data"):
        SquaredNormParams.model_validate({name: 3})


def test_noise_of_batches_is_covered_too():
    given = {"probes_per": "batch", "batch_size": 1, "num_batches": 2, "num_probes": 16}
    held = []
    for seed in range(60):
        (arrays,) = (
            o.arrays
            for o in compute(KIND, probes(KIND, "tanh-ce", 1, seed=seed, **given))
        )
        exact = dense_of(probes(KIND, "tanh-ce", 1)[0]).square().sum().item()
        low, high = arrays["squared_norm_low"], arrays["squared_norm_high"]
        held.append(low <= exact <= high)
    assert np.mean(held) > 0.8
