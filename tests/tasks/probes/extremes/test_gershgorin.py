"""Bounds of spectra from absolute row sums."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.probes.extremes.gershgorin import member_bytes
from tests.tasks.probes.checks import DATA, probes
from tests.tasks.probes.test_trace import matrix
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.gershgorin"
TINY = 1e-13  # rounding of sums near zero
SIZES = {"tanh-ce": [18, 6, 18, 3]}


def discs(A_DD):
    """Return the bounds of a matrix, row by row."""
    rows = [
        (row[i].item(), sum(abs(a.item()) for j, a in enumerate(row) if j != i))
        for i, row in enumerate(A_DD)
    ]
    return min(a - r for a, r in rows), max(a + r for a, r in rows)


@pytest.mark.parametrize("case", DATA)
def test_all_eigenvalues_are_within_bounds_that_equal_a_plain_loop(case):
    members = probes(KIND, case, 2)
    for node, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        H_DD, arrays = dense_of(node), outcome.arrays
        lower, upper = discs(H_DD)
        assert arrays["lower_bound"] == pytest.approx(lower, rel=1e-10)
        assert arrays["upper_bound"] == pytest.approx(upper, rel=1e-10)
        values = torch.linalg.eigvalsh(H_DD).numpy()
        assert arrays["lower_bound"] <= values[0] <= values[-1] <= arrays["upper_bound"]
        assert arrays["num_matvecs"] == len(H_DD)


def test_eigenvalues_of_each_layer_s_block_are_within_its_bounds():
    members = probes(KIND, "tanh-ce", 3)
    for node, outcome in zip(members, compute(KIND, members), strict=True):
        H_DD, arrays, start = dense_of(node), outcome.arrays, 0
        assert list(arrays["layer"]) == [
            "layer1.weight",
            "layer1.bias",
            "layer2.weight",
            "layer2.bias",
        ]
        for number, size in enumerate(SIZES["tanh-ce"]):
            rows_BD = H_DD[start : start + size]
            block_BB = rows_BD[:, start : start + size]
            values = torch.linalg.eigvalsh(block_BB).numpy()
            bounds = [
                arrays[f"layer_{end}_bound"][number] for end in ("lower", "upper")
            ]
            np.testing.assert_allclose(bounds, discs(block_BB), rtol=1e-10, atol=TINY)
            assert bounds[0] - TINY <= values[0] <= values[-1] <= bounds[1] + TINY
            outside = rows_BD.abs().sum(1) - block_BB.abs().sum(1)
            coupling = arrays["layer_coupling"][number]
            assert coupling == pytest.approx(outside.max().item(), rel=1e-10)
            start += size
        # Between blocks there is no more than the coupling.
        ends = arrays["layer_upper_bound"] + arrays["layer_coupling"]
        assert torch.linalg.eigvalsh(H_DD)[-1].item() <= ends.max()


def test_of_a_block_alone_the_whole_is_the_layer():
    (node,) = probes(KIND, "tanh-ce", 1, layers=["layer2.weight"])
    (outcome,) = compute(KIND, [node])
    arrays = outcome.arrays
    assert arrays["lower_bound"] == arrays["layer_lower_bound"][0]
    assert arrays["upper_bound"] == arrays["layer_upper_bound"][0]
    assert arrays["layer_coupling"] == [0.0]
    (whole,) = compute(KIND, probes(KIND, "tanh-ce", 1))
    assert arrays["upper_bound"] == pytest.approx(
        whole.arrays["layer_upper_bound"][2], rel=1e-12
    )


def test_bounds_of_a_diagonal_matrix_are_its_extreme_eigenvalues():
    of = matrix(torch.diag(torch.tensor([-1.5, 0.25, 3.0])).double())
    (outcome,) = compute(KIND, [member(KIND, {}, matrix=of)])
    assert (outcome.arrays["lower_bound"], outcome.arrays["upper_bound"]) == (-1.5, 3.0)


def test_bounds_of_a_full_matrix_are_no_eigenvalues():
    of = matrix(with_spectrum([-1.0, 0.5, 2.0, 5.0], 0))
    (outcome,) = compute(KIND, [member(KIND, {}, matrix=of)])
    assert outcome.arrays["lower_bound"] < -1.0
    assert outcome.arrays["upper_bound"] > 5.0


def test_a_matrix_that_is_too_large_is_refused_before_it_is_formed():
    with pytest.raises(InputError, match="dimension 44 or less, got 45"):
        compute(KIND, probes(KIND, "tanh-ce", 2, max_size=44))


def test_memory_holds_the_matrices():
    (node,) = probes(KIND, "tanh-ce", 1)
    assert 3 * 8 * 45**2 < member_bytes(node) < 10**7
