"""The diagonal of curvature operators."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.diagonal import DiagonalParams
from curvflow.schemas.kinds.shared.operators import OperatorName
from curvflow.schemas.kinds.shared.vectors import NO_SAMPLE_MEANS
from curvflow.tasks.curvature.operators import dense_matrices, tile_operator
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.registry import find
from tests.tasks.probes.checks import probes
from tests.tasks.probes.test_trace import matrix
from tests.tasks.toys import CPU, assert_declared, compute, member, random_symmetric

KIND = "probe.diagonal"
OPERATORS = get_args(OperatorName)
PER = {"data": {}, "batch": {"probes_per": "batch", "batch_size": 4}}
SIZES = [18, 6, 18, 3]
CASES = [
    (operator, per)
    for operator in OPERATORS
    for per in PER
    if per == "data" or operator not in NO_SAMPLE_MEANS
]


def exact_diagonals(members):
    """Return the diagonals of the matrices formed from products, (M, D)."""
    tile = tile_operator(members, CPU, columns=64)
    return dense_matrices(tile.operator).diagonal(dim1=1, dim2=2).numpy()


def with_seeds(members):
    return [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(members)
    ]


def off(outcome, exact_D):
    """Return how many standard errors each entry is off, but for rounding."""
    away_D = np.abs(outcome.arrays["diagonal"] - exact_D)
    slack = 1e-9 * np.abs(exact_D).max()
    return away_D / (outcome.arrays["diagonal_sem"] + slack)


@pytest.mark.parametrize(("operator", "per"), CASES)
def test_entries_agree_with_the_dense_diagonal(operator, per):
    given = {"operator": operator, "num_probes": 100, **PER[per]}
    members = with_seeds(probes(KIND, "tanh-ce", 4, **given))
    exact_MD = exact_diagonals(members)
    scores, held = [], []
    for outcome, exact_D in zip(compute(KIND, members), exact_MD, strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        scores.append(off(outcome, exact_D))
        slack = 1e-9 * np.abs(exact_D).max()
        below = arrays["diagonal_low"] <= exact_D + slack
        held.append(below & (exact_D - slack <= arrays["diagonal_high"]))
        assert arrays["diagonal"].shape == (sum(SIZES),)
        # Seven batches and a rest: passes are ended.
        assert arrays["num_matvecs"] == (100 if per == "data" else 14)
    assert np.max(scores) < 5.5
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.3
    assert np.mean(held) > 0.92


@pytest.mark.parametrize("per", PER)
def test_means_of_layers_are_those_of_their_entries(per):
    members = probes(KIND, "tanh-ce", 2, num_probes=16, **PER[per])
    exact_MD = exact_diagonals(members)
    for outcome, exact_D in zip(compute(KIND, members), exact_MD, strict=True):
        arrays = outcome.arrays
        assert arrays["layer_size"].tolist() == SIZES
        ends = np.cumsum(SIZES)[:-1]
        means = [part.mean() for part in np.split(arrays["diagonal"], ends)]
        np.testing.assert_allclose(arrays["layer_diagonal_mean"], means, rtol=1e-10)
        exact_L = np.array([part.mean() for part in np.split(exact_D, ends)])
        away_L = np.abs(arrays["layer_diagonal_mean"] - exact_L)
        assert (away_L < 5 * arrays["layer_diagonal_sem"]).all()
        low_L = arrays["layer_diagonal_mean_low"]
        assert (low_L < arrays["layer_diagonal_mean"]).all()
        high_L = arrays["layer_diagonal_mean_high"]
        assert (arrays["layer_diagonal_mean"] < high_L).all()


@pytest.mark.parametrize("per", PER)
def test_intervals_of_layers_hold_their_means(per):
    members = probes(KIND, "tanh-ce", 1, num_probes=28, **PER[per])
    seeded = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for m in members
        for seed in range(60)
    ]
    (exact_D,) = exact_diagonals(members)
    exact_L = [part.mean() for part in np.split(exact_D, np.cumsum(SIZES)[:-1])]
    low_ML, high_ML = (
        np.stack(
            [o.arrays[f"layer_diagonal_mean_{end}"] for o in compute(KIND, seeded)]
        )
        for end in ("low", "high")
    )
    assert np.mean((low_ML <= exact_L) & (exact_L <= high_ML)) > 0.9


@pytest.mark.parametrize("per", PER)
def test_equal_seeds_see_the_trace_with_the_same_vectors(per):
    given = {"num_probes": 16, **PER[per]}
    ours, theirs = (
        compute(kind, probes(kind, "tanh-ce", 2, **given))[0].arrays
        for kind in (KIND, "probe.trace")
    )
    assert ours["diagonal"].sum() == pytest.approx(theirs["trace"], rel=1e-10)


@pytest.mark.parametrize("per", PER)
def test_results_do_not_depend_on_the_width_of_the_tile(per):
    given = {"num_probes": 8, "rel_sem": 0.5, **PER[per]}
    members = with_seeds(probes(KIND, "tanh-ce", 5, **given))
    reference = compute(KIND, members)
    assert len({o.arrays["num_matvecs"].item() for o in reference}) > 1
    for result, expected in zip(compute(KIND, members[:2]), reference, strict=False):
        for name in ("diagonal", "diagonal_sem", "layer_diagonal_sem", "num_matvecs"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-8, atol=1e-10
            )


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_vectors_are_doubled_until_the_requested_error(per, law):
    given = {"num_probes": 8, "rel_sem": 0.2, "max_probes": 8192, "distribution": law}
    for outcome in compute(KIND, probes(KIND, "tanh-ce", 3, **given, **PER[per])):
        arrays = outcome.arrays
        assert arrays["reached"]
        assert arrays["relative_error"] <= 0.2
        error, norm = (
            np.linalg.norm(arrays[name]) for name in ("diagonal_sem", "diagonal")
        )
        assert arrays["relative_error"] == pytest.approx(error / norm)


def test_an_error_out_of_reach_is_flagged():
    members = probes(KIND, "tanh-ce", 2, num_probes=4, rel_sem=1e-5, max_probes=8)
    arrays = compute(KIND, members)[0].arrays
    assert not arrays["reached"]
    assert arrays["num_matvecs"] == 8


def test_a_single_layer_is_probed_as_a_block():
    members = probes(KIND, "tanh-ce", 2, num_probes=64, layers=["layer2.*"])
    for outcome, exact_D in zip(
        compute(KIND, members), exact_diagonals(members), strict=True
    ):
        assert len(outcome.arrays["diagonal"]) == 21
        assert np.max(off(outcome, exact_D)) < 5.5


def test_a_matrix_has_one_layer_and_its_diagonal():
    A_DD = random_symmetric(12, 3)
    members = [member(KIND, {"num_probes": 200}, matrix=matrix(A_DD))] * 2
    (outcome, _) = compute(KIND, members)
    assert outcome.arrays["layer"].tolist() == ["matrix"]
    assert np.max(off(outcome, A_DD.diagonal().numpy())) < 5


def test_signs_see_a_diagonal_matrix_exactly():
    of = matrix(torch.diag(torch.tensor([3.0, -4.0, 0.0, 1.0]).double()))
    arrays = compute(KIND, [member(KIND, {"num_probes": 32}, matrix=of)] * 2)[0].arrays
    assert arrays["diagonal"].tolist() == [3, -4, 0, 1]
    assert arrays["relative_error"] == 0


def test_a_matrix_has_no_batches():
    of = matrix(random_symmetric(3, 0))
    with pytest.raises(InputError, match="expected a mean over samples"):
        compute(KIND, [member(KIND, {"probes_per": "batch"}, matrix=of)] * 2)


@pytest.mark.parametrize("operator", NO_SAMPLE_MEANS)
def test_what_is_no_mean_over_samples_is_refused_while_planning(operator):
    with pytest.raises(ValueError, match="cannot be combined with operator"):
        DiagonalParams(probes_per="batch", operator=operator)


@pytest.mark.parametrize("given", [{"max_probes": 100}, {"batch_size": 3}])
def test_settings_that_would_do_nothing_are_refused(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} cannot be combined"):
        DiagonalParams.model_validate(given)


def test_weights_that_are_not_finite_are_refused():
    (probed,) = probes(KIND, "tanh-ce", 1)
    weights = probed.one("weights")
    broken = {**weights.arrays, "weights": weights["weights"] * np.nan}
    inputs = {**probed.inputs, "weights": [replace(weights, arrays=broken)]}
    with pytest.raises(InputError, match="NaN"):
        compute(KIND, [replace(probed, inputs=inputs)])


@pytest.mark.parametrize("layers", [None, ["layer2.bias"]])
@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("count", [8, 64])
def test_memory_is_as_estimated(per, count, layers):
    given = {"num_probes": count, "layers": layers, **PER[per]}
    members = probes(KIND, "tanh-ce", 1, **given)
    counted = peak_bytes(lambda: compute(KIND, members))
    assert counted < find(KIND).member_bytes(members[0]) < 40 * counted


def test_memory_does_not_grow_with_the_vectors():
    few, many = (
        find(KIND).member_bytes(probes(KIND, "tanh-ce", 1, num_probes=n)[0])
        for n in (16, 4096)
    )
    assert few == many
