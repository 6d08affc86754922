"""The spectrum of networks by stochastic Lanczos quadrature."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.nodes import Matrix
from curvflow.tasks.curvature.ritz_data import member_bytes
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.registry import Machine, find
from tests.tasks.probes.checks import probes
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.spectrum"


def of_matrix(values, seed=0, **params):
    empty = np.zeros(0)
    arrays = dict.fromkeys(("indptr", "indices", "values", "points"), empty)
    matrix = with_spectrum(values, seed=seed).numpy()
    arrays |= {"form": np.array("dense"), "dense": matrix, "kernel": np.array("")}
    arrays["size"] = np.array(len(matrix))
    node = Matrix("m", "data.random_matrix", {}, arrays, f"m{seed}{values[:3]}")
    return member(KIND, params, matrix=node)


@pytest.mark.parametrize("case", ["tanh-ce", "relu-sse"])
def test_a_full_run_knows_extremes_and_the_measure_of_its_vector(case):
    members = probes(KIND, case, 2, num_runs=16, num_steps=60)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        got, exact = outcome.arrays, np.linalg.eigvalsh(dense_of(probed).numpy())
        assert got["largest"] == pytest.approx(exact[-1], rel=1e-9)
        assert got["smallest"] == pytest.approx(exact[0], rel=1e-9, abs=1e-9)
        assert abs(got["trace"] - exact.sum()) < 5 * got["trace_sem"]
        threshold = 1e-3 * np.abs(exact).max()
        assert got["zero_threshold"] == pytest.approx(threshold, rel=1e-9)
        for name, inside in (
            ("zero_mass", np.abs(exact) <= threshold),
            ("negative_mass", exact < -threshold),
        ):
            error = abs(got[name] - inside.mean())
            assert error < 5 * got[f"{name}_sem"] + 1e-12
            assert got[f"{name}_low"] <= got[name] <= got[f"{name}_high"]
        assert got["size"] == len(exact)


def test_every_run_sums_to_one_and_counts_its_products():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2, num_runs=3, num_steps=7))[
        0
    ].arrays
    np.testing.assert_allclose(arrays["ritz_weights"].sum(1), 1, rtol=1e-12)
    assert arrays["ritz_values"].shape == (3, 7)
    assert arrays["num_matvecs"] == 21


def test_a_single_run_has_the_error_of_its_trace_and_none_of_its_masses():
    (got,) = compute(KIND, [of_matrix(np.linspace(-1, 1, 9), num_runs=1, num_steps=4)])
    assert abs(got.arrays["trace"]) < 4 * got.arrays["trace_sem"]
    assert got.arrays["trace_low"] < 0 < got.arrays["trace_high"]
    assert (got.arrays["zero_mass_low"], got.arrays["zero_mass_high"]) == (0, 1)


def test_a_rank_deficient_matrix_shows_its_atom():
    spectrum = [0.0] * 30 + [1.0, 2.0, 3.0] * 10
    (got,) = compute(KIND, [of_matrix(spectrum, num_runs=30, num_steps=20)])
    arrays = got.arrays
    assert arrays["rank_degeneracy"] == pytest.approx(arrays["zero_mass"], abs=1e-9)
    assert abs(arrays["zero_mass"] - 0.5) < 5 * arrays["zero_mass_sem"]
    assert arrays["zero_mass_low"] < 0.5 < arrays["zero_mass_high"]
    assert abs(arrays["rank_degeneracy_value"]) < 1e-12


def test_a_zero_matrix_is_all_degenerate():
    (got,) = compute(KIND, [of_matrix([0.0] * 5, num_runs=2)])
    arrays = got.arrays
    for name in ("zero_mass", "zero_mass_low", "zero_mass_high", "rank_degeneracy"):
        assert arrays[name] == pytest.approx(1)
    assert arrays["num_matvecs"] == 2
    assert arrays["largest"] == arrays["negative_mass"] == arrays["trace"] == 0


def test_an_indefinite_spectrum_shows_its_negative_mass():
    spectrum = [-1.0] * 10 + [1.0] * 30
    (got,) = compute(KIND, [of_matrix(spectrum, num_runs=50, num_steps=5)])
    arrays = got.arrays
    assert abs(arrays["negative_mass"] - 0.25) < 5 * arrays["negative_mass_sem"]
    mean, sem = arrays["negative_mass"], arrays["negative_mass_sem"]
    for end in ("low", "high"):
        p = arrays[f"negative_mass_{end}"]
        error_at_p = sem * np.sqrt(p * (1 - p) / (mean * (1 - mean)))
        assert abs(p - mean) == pytest.approx(2.0096 * error_at_p, rel=1e-4)
    assert arrays["smallest"] == pytest.approx(-1)
    assert arrays["smallest_residual"] < 1e-12


def test_results_do_not_depend_on_the_width_of_the_tile():
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(probes(KIND, "tanh-ce", 5, num_runs=3, num_steps=6))
    ]
    narrow = compute(KIND, members[:2])
    for first, other in zip(narrow, compute(KIND, members), strict=False):
        for name in set(first.arrays) - {"ritz_residuals"}:
            np.testing.assert_allclose(
                first.arrays[name], other.arrays[name], rtol=1e-9, atol=1e-11
            )


def test_weights_that_are_not_finite_are_refused():
    (probed,) = probes(KIND, "tanh-ce", 1)
    fit = probed.one("weights")
    broken = replace(fit, arrays={**fit.arrays, "weights": fit["weights"] * np.inf})
    inputs = {**probed.inputs, "weights": [broken]}
    with pytest.raises(InputError, match="weights: expected finite numbers"):
        compute(KIND, [replace(probed, inputs=inputs)])


def test_memory_counts_the_bases_of_the_runs_at_once():
    few, many = (
        member_bytes(probes(KIND, "tanh-ce", 1, num_runs=runs, num_steps=45)[0])
        for runs in (4, 8)
    )
    assert many - few >= 4 * 45 * 45 * 8


def test_memory_is_estimated_within_a_tenth():
    outcome = of_matrix(np.linspace(1, 2, 100), num_runs=16, num_steps=4)
    held = outcome.one("matrix")["dense"].nbytes
    taken = peak_bytes(lambda: compute(KIND, [outcome]))
    assert member_bytes(outcome) - held == pytest.approx(taken, rel=0.1)


def test_three_vectors_of_a_run_tell_the_same_in_less_memory():
    values = np.concatenate([[9, 8], np.zeros(30), np.linspace(1, 2, 168)])
    both = [
        of_matrix(values, num_runs=4, num_steps=120, reorthogonalize=mode)
        for mode in ("full", "none")
    ]
    (full,), (none,) = (compute(KIND, [probed]) for probed in both)
    assert_declared(KIND, none)
    assert none.arrays["reorthogonalized"] == np.array(False)
    assert "reorthogonalized" not in full.arrays
    # Rounding parts the zeros of the others, too, which are not united.
    assert none.arrays["rank_degeneracy"] == pytest.approx(none.arrays["zero_mass"])
    for name in ("largest", "trace", "trace_sem", "zero_mass"):
        assert none.arrays[name] == pytest.approx(full.arrays[name], rel=1e-8), name
    few = {"num_runs": 4, "num_steps": 120, "reorthogonalize": "none"}
    taken = peak_bytes(lambda: compute(KIND, [both[1]]))
    held = both[1].one("matrix")["dense"].nbytes
    assert member_bytes(of_matrix(values, **few)) - held == pytest.approx(taken, 0.2)
    rows = 4 * 200 * 8 * (120 - 1)
    assert member_bytes(both[0]) - member_bytes(both[1]) == pytest.approx(rows)


STORED = """\
study: copies
stages:
  matrix: {use: data.random_matrix, ensemble: outliers, size: 200}
  runs: {use: probe.spectrum, matrix: matrix, num_runs: 3, num_steps: 120,
         reorthogonalize: none}
  whole: {use: probe.spectrum, matrix: matrix, num_runs: 3, num_steps: 120}
  top: {use: probe.eigenvalues, ritz: runs, method: lanczos, which: LA, k: 5}
  known: {use: probe.eigenvalues, matrix: matrix, method: lanczos, which: LA, k: 5}
  moments: {use: probe.moments, ritz: runs, num_moments: 12, support: [-15, 65]}
  of_whole: {use: probe.moments, ritz: whole, num_moments: 12, support: [-15, 65]}
"""


def test_stored_copies_are_read_as_one(tmp_path):
    (tmp_path / "study.yaml").write_text(STORED)
    results = curvflow.run(tmp_path / "study.yaml", workers=1)
    top, known = results["top"], results["known"]
    near = abs(results["runs"]["ritz_values"] - known["eigenvalues"][0]) < 1e-6
    assert near.sum("node").min() > 1
    np.testing.assert_allclose(top["eigenvalues"], known["eigenvalues"], rtol=1e-9)
    assert top["converged"].all()
    np.testing.assert_allclose(
        results["moments"]["moments"], results["of_whole"]["moments"], atol=1e-10
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_spectrum():
    members = probes(KIND, "tanh-ce", 3, num_runs=3, num_steps=6)
    on_gpu = find(KIND).compute(members, Machine("cuda:0"))
    for a, b in zip(on_gpu, compute(KIND, members), strict=True):
        np.testing.assert_allclose(
            a.arrays["ritz_values"], b.arrays["ritz_values"], rtol=1e-8, atol=1e-12
        )
