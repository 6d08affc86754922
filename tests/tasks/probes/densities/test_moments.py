"""Moments of the spectra of networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.densities.moments import MomentsParams
from curvflow.schemas.nodes import Ritz
from curvflow.tasks.probes.densities.moments import data_bytes, member_bytes
from tests.tasks.probes.checks import probes
from tests.tasks.probes.test_trace import matrix
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.moments"
BASES = ["power", "chebyshev"]


def exact(values, params_support, basis, highest):
    if basis == "power":
        return np.array([np.mean(values**k) for k in range(highest + 1)])
    low, high = params_support
    angle = np.arccos((2 * values - low - high) / (high - low))
    return np.array([np.mean(np.cos(k * angle)) for k in range(highest + 1)])


def as_ritz(outcome) -> Ritz:
    return Ritz("ritz", "probe.dense", {}, outcome.arrays, "r")


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moments_are_within_five_standard_errors_of_the_eigenvalues(basis, seed):
    members = probes(
        KIND, "tanh-ce", 2, basis=basis, num_moments=6, num_probes=60, seed=seed
    )
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays, H_DD = outcome.arrays, dense_of(probed)
        values = np.linalg.eigvalsh(H_DD.numpy())
        low, high = arrays["support"]
        assert low < values[0]
        assert values[-1] < high
        truth = exact(values, arrays["support"], basis, 6)
        error = np.abs(arrays["moments"] - truth)
        assert (error < 5 * arrays["moments_sem"] + 1e-9 * np.abs(truth)).all()
        trace_error = abs(arrays["trace"] - H_DD.trace().item())
        assert trace_error < 5 * arrays["trace_sem"]
        assert arrays["num_matvecs"] == 60 * 3 + 20


@pytest.mark.parametrize("basis", BASES)
def test_all_eigenvalues_as_ritz_data_give_the_exact_moments_without_a_product(basis):
    (of,) = compute("probe.dense", probes("probe.dense", "tanh-ce", 1))
    given = {"basis": basis, "num_moments": 5}
    (outcome,) = compute(KIND, [member(KIND, given, ritz=as_ritz(of))])
    assert_declared(KIND, outcome)
    arrays = outcome.arrays
    truth = exact(of.arrays["eigenvalues"], arrays["support"], basis, 5)
    np.testing.assert_allclose(arrays["moments"], truth, rtol=1e-10, atol=1e-12)
    assert arrays["trace"] == pytest.approx(float(of.arrays["trace"]), rel=1e-10)
    assert arrays["num_matvecs"] == 0
    assert not arrays["moments_sem"].any()
    np.testing.assert_array_equal(arrays["moments_low"], arrays["moments_high"])


def test_the_covariance_is_that_of_the_draws():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2, num_moments=4))[0].arrays
    draws = arrays["moment_draws"]
    assert draws.shape == (50, 5)
    np.testing.assert_allclose(arrays["moments"], draws.mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        arrays["moments_covariance"], np.cov(draws.T) / 50, rtol=1e-9, atol=1e-18
    )


def test_ritz_data_of_too_few_steps_are_refused():
    values = np.array([[0.0, 1.0]])
    arrays = {
        "ritz_values": values,
        "ritz_weights": np.full((1, 2), 0.5),
        "ritz_residuals": np.zeros((1, 2)),
        "size": np.array(9),
        "num_matvecs": np.array(2),
    }
    given = {"num_moments": 4}
    few = Ritz("ritz", "probe.spectrum", {}, arrays, "r")
    with pytest.raises(InputError, match="at most 3, the exact moments"):
        compute(KIND, [member(KIND, given, ritz=few)])
    ended = {**arrays, "ritz_values": np.array([[0.0, np.nan]])}
    ended["ritz_weights"] = np.array([[1.0, 0.0]])
    whole = Ritz("ritz", "probe.spectrum", {}, ended, "r")
    (outcome,) = compute(KIND, [member(KIND, given, ritz=whole)])
    assert outcome.arrays["num_draws"] == 1


def test_an_operator_with_ritz_data_is_refused():
    (of,) = compute("probe.dense", probes("probe.dense", "tanh-ce", 1))
    with pytest.raises(InputError, match="cannot be combined with Ritz data"):
        compute(KIND, [member(KIND, {"operator": "ggn"}, ritz=as_ritz(of))])


@pytest.mark.parametrize("support", [[1.0, 1.0], [2.0, -1.0]])
def test_a_support_that_does_not_ascend_is_refused(support):
    with pytest.raises(ValueError, match="support that ascends"):
        MomentsParams.model_validate({"support": support})


def test_a_support_that_lacks_part_of_the_spectrum_is_refused():
    of = matrix(with_spectrum(np.linspace(0, 4, 12), 0))
    given = {"support": [0.0, 1.0], "num_moments": 20}
    with pytest.raises(InputError, match="Widen it"):
        compute(KIND, [member(KIND, given, matrix=of)])


@pytest.mark.parametrize("case", ["regular", "star"])
def test_a_measured_support_holds_what_signs_are_orthogonal_to(case):
    if case == "regular":  # Of so many signs one in twelve sums to nothing.
        steps = torch.tensor([1, 2, 5])
        at = torch.arange(40)
        A_DD = torch.zeros(40, 40).double()
        A_DD[at[:, None], (at[:, None] + steps) % 40] = 1
        A_DD += A_DD.mT.clone()
    else:
        A_DD = torch.eye(6).double()
        A_DD[0], A_DD[:, 0], A_DD[0, 0] = 1, 1, 5
    true = torch.linalg.eigvalsh(A_DD)
    members = [
        member(KIND, {"num_moments": 12, "seed": seed}, matrix=matrix(A_DD))
        for seed in range(60)
    ]
    tile = compute(KIND, members)
    for number, outcome in enumerate(tile):
        low, high = outcome.arrays["support"]
        assert low <= true[0] < true[-1] <= high, number
    for seed in range(0, 60, 12):
        (alone,) = compute(KIND, members[seed : seed + 1])
        for name in ("support", "moments", "num_matvecs"):
            np.testing.assert_allclose(
                alone.arrays[name], tile[seed].arrays[name], rtol=1e-8, atol=1e-12
            )


def test_a_multiple_of_the_identity_has_a_support_around_it():
    of = matrix(3 * torch.eye(6).double())
    (outcome,) = compute(KIND, [member(KIND, {"num_moments": 8}, matrix=of)])
    low, high = outcome.arrays["support"]
    assert low < 3 < high
    assert outcome.arrays["trace"] == pytest.approx(18, rel=1e-9)


@pytest.mark.parametrize("basis", BASES)
def test_results_do_not_depend_on_the_width_of_the_tile(basis):
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(
            probes(KIND, "tanh-ce", 5, basis=basis, num_moments=4, num_probes=6)
        )
    ]
    reference = compute(KIND, members)
    for result, expected in zip(compute(KIND, members[:2]), reference, strict=False):
        for name in ("moments", "moments_sem", "support", "trace"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-8, atol=1e-12
            )


def test_memory_of_ritz_data_is_theirs_alone():
    (of,) = compute("probe.dense", probes("probe.dense", "tanh-ce", 1))
    stored = member(KIND, {}, ritz=as_ritz(of))
    assert member_bytes(stored) == 64 * 45 * 8
    assert data_bytes(stored) == 0
    (fresh,) = probes(KIND, "tanh-ce", 1)
    assert member_bytes(fresh) > 8 * 45 * 8 * 16
