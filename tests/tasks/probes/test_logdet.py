"""Log-determinants of matrices and networks."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.nodes import Graph, Ritz
from tests.tasks.matrices import as_matrix, matrix_of
from tests.tasks.probes.checks import probes
from tests.tasks.toys import (
    assert_declared,
    compute,
    dense_of,
    member,
    with_spectrum,
)

KIND = "probe.logdet"
KERNEL = {"num_points": 150, "length_scale": 0.6, "noise": 1e-4}


def kernel(**more):
    return matrix_of("data.kernel_matrix", {**KERNEL, **more})


def truth(node) -> float:
    return float(np.linalg.slogdet(node["dense"])[1])


def run(node, seeds=(0,), **params):
    members = [member(KIND, {**params, "seed": s}, matrix=node) for s in seeds]
    return [outcome.arrays for outcome in compute(KIND, members)]


METHODS = {
    "slq": {"num_runs": 30, "num_steps": 60, "floor": 1e-4},
    "preconditioned_slq": {"rank": 60, "num_runs": 30, "num_steps": 25},
    "preconditioned_meme": {"rank": 60, "num_runs": 30, "num_steps": 25},
    "nystrom": {
        "method": "preconditioned_meme",
        "preconditioner": "nystrom",
        "rank": 60,
        "num_runs": 30,
        "num_steps": 25,
    },
}


@pytest.mark.parametrize("way", METHODS)
def test_estimates_are_within_four_standard_errors_of_the_dense_value(way):
    node, seeds = kernel(), (0, 1, 2)
    for arrays in run(node, seeds, **{"method": way, **METHODS[way]}):
        error = abs(arrays["logdet"] - truth(node))
        assert error < 4 * arrays["logdet_sem"]
        assert arrays["converged"]
        assert arrays["logdet_draws"].mean() == pytest.approx(float(arrays["logdet"]))


def test_preconditioning_is_more_accurate_at_equal_products():
    node = kernel()
    budget = {"preconditioned_meme": METHODS["preconditioned_meme"]}
    budget["slq"] = {"num_runs": 14, "num_steps": 58}
    sems = {
        way: np.mean([a["logdet_sem"] for a in run(node, (0, 1), method=way, **more)])
        for way, more in budget.items()
    }
    assert sems["preconditioned_meme"] < sems["slq"] / 5
    (arrays,) = run(node, method="preconditioned_meme", **budget["preconditioned_meme"])
    assert arrays["num_matvecs"] == 60 + 30 * 25


def test_dense_and_compared_values_are_slogdet_s():
    node = kernel()
    (exact,) = run(node, method="dense", damping=0.5)
    shifted = np.linalg.slogdet(node["dense"] + 0.5 * np.eye(150))[1]
    assert exact["logdet"] == pytest.approx(shifted, rel=1e-12)
    assert exact["logdet_sem"] == 0
    (rough,) = run(node, method="slq", num_runs=4, num_steps=10, compare=True)
    assert rough["exact"] == pytest.approx(truth(node), rel=1e-12)
    error = abs(rough["logdet"] - rough["exact"])
    assert rough["error"] == pytest.approx(error / abs(truth(node)))
    scale = np.abs(node["dense"]).sum(1).max()
    assert rough["scale"] == pytest.approx(scale)
    scaled = truth(node) - 150 * np.log(scale)
    assert rough["error_scaled"] == pytest.approx(error / abs(scaled))


@pytest.mark.parametrize("way", ["slq", "chebyshev", "meme"])
def test_methods_agree_where_the_spectrum_is_far_from_zero(way):
    values = np.linspace(1, 3, 60)
    node = matrix_of(
        "data.random_matrix",
        {"ensemble": "eigenvalues", "eigenvalues": tuple(values.tolist())},
    )
    (arrays,) = run(node, method=way, num_runs=20, num_steps=30, floor=1.0)
    exact = np.log(values).sum()
    assert abs(arrays["logdet"] - exact) < 4 * arrays["logdet_sem"] + 2e-2 * exact
    assert arrays["converged"] == (abs(arrays["gap"]) <= 3 * arrays["logdet_sem"])


def test_too_few_steps_for_the_condition_number_are_reported():
    node = kernel(noise=1e-9, length_scale=0.9)
    for way in ("slq", "chebyshev", "meme"):
        (arrays,) = run(node, method=way, num_runs=20, num_steps=12, floor=1e-9)
        assert not arrays["converged"]


def test_gauss_and_radau_enclose_each_run():
    node = kernel()
    common = {"method": "slq", "num_runs": 6, "floor": 1e-4, "seed": 3}
    (rough,) = run(node, seeds=(3,), **common, num_steps=20)
    (full,) = run(node, seeds=(3,), **common, num_steps=150)
    assert rough["gap"] < 0
    assert rough["logdet"] + rough["gap"] <= full["logdet"] <= rough["logdet"]


def test_a_multiple_of_the_identity_is_exact():
    for way in ("slq", "preconditioned_slq", "meme"):
        (arrays,) = run(
            as_matrix(3.0 * np.eye(20)), method=way, num_runs=3, num_steps=4, rank=5
        )
        assert arrays["logdet"] == pytest.approx(20 * np.log(3), rel=2e-2)


def test_an_indefinite_operator_is_refused_with_the_damping_that_would_do():
    node = as_matrix(np.diag([-0.5, 1.0, 2.0, 3.0]))
    message = "damping: expected a positive definite.* at least 0.55"
    for way in ("slq", "dense"):
        with pytest.raises(InputError, match=message):
            run(node, method=way, num_runs=4, num_steps=4)
    with pytest.raises(InputError, match="method slq reports"):
        run(node, method="preconditioned_slq", num_runs=4, num_steps=4, rank=2)
    for way in ("slq", "preconditioned_slq", "dense"):
        (arrays,) = run(node, method=way, damping=0.6, num_runs=4, num_steps=4, rank=2)
        assert np.isfinite(arrays["logdet"])


@pytest.mark.parametrize("way", ["slq", "preconditioned_slq"])
def test_a_damped_network_has_the_dense_value_of_its_gauss_newton(way):
    params = {"operator": "ggn", "damping": 0.1, "method": way, "rank": 20}
    few = {"num_runs": 20, "num_steps": 30}
    members = probes(KIND, "tanh-ce", 2, **params, **few, compare=True)
    for outcome in compute(KIND, members):
        arrays = outcome.arrays
        assert_declared(KIND, outcome)
        assert abs(arrays["logdet"] - arrays["exact"]) < 4 * arrays["logdet_sem"]


def test_a_damped_hessian_has_the_dense_value():
    few = {"method": "slq", "num_runs": 30, "num_steps": 40}
    members = probes(KIND, "tanh-ce", 2, **few, damping=2.0)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        damped = dense_of(probed) + 2 * torch.eye(dense_of(probed).shape[0])
        error = abs(outcome.arrays["logdet"] - torch.logdet(damped).item())
        assert error < 4 * outcome.arrays["logdet_sem"]


@pytest.mark.parametrize("rows", [1, 2, 9, 39, 40, 41, 60])
def test_by_itself_it_takes_the_whole_matrix_if_that_is_no_dearer(rows):
    values = np.logspace(-2, 1, rows)
    node = as_matrix(with_spectrum(values, seed=rows).numpy())
    few = {"num_runs": 4, "num_steps": 10, "rank": 5}
    (arrays,) = run(node, **few)
    (refined,) = run(node, **few, rel_error=0.1)
    is_dense = rows <= 40
    assert (str(arrays["definite"]) == "cholesky") == is_dense
    assert (arrays["logdet_sem"] == 0) == is_dense
    if is_dense:
        assert arrays["num_matvecs"] == refined["num_matvecs"] == rows
        assert arrays["logdet"] == pytest.approx(np.log(values).sum(), rel=1e-10)
        assert arrays["converged"]
    for other in ({"reorthogonalize": "none"}, {"floor": 1e-3}, {"dtype": "float32"}):
        (runs,) = run(node, **few, **other)
        assert str(runs["definite"]) != "cholesky", other


@pytest.mark.parametrize("seed", range(5))
def test_a_matrix_of_single_precision_states_its_rounding(seed):
    values = np.logspace(-9, 0, 60)
    node = as_matrix(with_spectrum(values, seed=seed).numpy())
    for damping in (1e-7, 1e-6, 1e-4, 1e-1):
        (whole,) = run(node, method="dense", damping=damping, dtype="float32")
        exact = np.log(values + damping).sum()
        assert whole["logdet_low"] <= exact <= whole["logdet_high"]
        assert whole["logdet_sem"] > 0
        assert whole["converged"] == (damping > 1e-7)
        assert np.isinf(whole["logdet_sem"]) == (damping == 1e-7)


def ritz_of(node, **params) -> Ritz:
    (outcome,) = compute(
        "probe.spectrum", [member("probe.spectrum", params, matrix=node)]
    )
    return Ritz("ritz", "probe.spectrum", {}, outcome.arrays, "ritz")


def test_stored_ritz_data_give_the_same_without_a_product():
    node = kernel()
    few = {"num_runs": 5, "num_steps": 40, "seed": 2}
    stored = ritz_of(node, **few)
    params = {"method": "slq", "damping": 0.1, "num_runs": 5, "num_steps": 40}
    (kept,) = compute(KIND, [member(KIND, params, ritz=stored)])
    (made,) = run(node, seeds=(2,), **params)
    assert kept.arrays["logdet"] == pytest.approx(float(made["logdet"]), rel=1e-10)
    assert kept.arrays["num_matvecs"] == 0
    with pytest.raises(InputError, match="method: expected slq, chebyshev or meme"):
        compute(KIND, [member(KIND, {"method": "dense"}, ritz=stored)])


def test_results_do_not_depend_on_the_width_of_the_tile():
    params = METHODS["nystrom"]
    whole = run(kernel(), (0, 1, 2), **params)
    part = run(kernel(), (0, 1), **params)
    for first, other in zip(part, whole, strict=False):
        np.testing.assert_allclose(
            first["logdet_draws"], other["logdet_draws"], rtol=1e-8
        )


def test_a_kernel_that_is_not_formed_has_the_same_value():
    dense, implicit = kernel(), kernel(form="kernel")
    params = {**METHODS["preconditioned_slq"], "known_moments": False}
    (a,), (b,) = (
        run(node, method="preconditioned_slq", **params) for node in (dense, implicit)
    )
    assert a["logdet"] == pytest.approx(float(b["logdet"]), rel=1e-6)
    assert a["scale"] == pytest.approx(float(b["scale"]), rel=1e-12)


def test_cholesky_needs_entries():
    node = matrix_of("data.sparse_matrix", {"grid": (5, 5), "shift": 0.1})
    params = {"method": "preconditioned_slq", "num_runs": 4, "num_steps": 9, "rank": 6}
    (result,) = run(node, **params)
    assert np.isfinite(result["logdet"])
    with pytest.raises(InputError, match="preconditioner: cholesky cannot"):
        run(node, **params, preconditioner="cholesky")


def test_how_an_operator_is_known_to_be_definite_is_stated():
    dominant = as_matrix(3.0 * np.eye(20) + 0.1)
    hidden = as_matrix(np.diag(np.linspace(0.01, 1, 60)))
    few = {"num_runs": 12, "num_steps": 12}
    results = [
        run(kernel(), method="slq", floor=1e-4, **few),
        run(dominant, method="slq", **few),
        run(kernel(), method="dense"),
        run(kernel(), **METHODS["preconditioned_slq"], method="preconditioned_slq"),
        run(kernel(noise=1e-9, length_scale=0.9), method="slq", **few),
        run(hidden, method="slq", damping=0.5, num_runs=4, num_steps=60),
    ]
    ways = [str(arrays["definite"]) for (arrays,) in results]
    assert ways == [
        "floor",
        "gershgorin",
        "cholesky",
        "tested",
        "assumed",
        "gershgorin",
    ]
    members = probes(
        KIND, "tanh-ce", 1, method="slq", operator="ggn", damping=0.1, **few
    )
    (outcome,) = compute(KIND, members)
    assert str(outcome.arrays["definite"]) == "damping"


def test_where_an_end_is_not_resolved_the_interval_has_none_and_nothing_converged():
    values = np.logspace(-6, 2, 200)
    node = as_matrix(with_spectrum(values, seed=0).numpy())
    (arrays,) = run(node, method="slq", num_runs=10, num_steps=50)
    assert arrays["logdet_low"] == -np.inf
    assert np.log(values).sum() < arrays["logdet_high"]
    assert np.isinf(arrays["logdet_sem"])
    assert not arrays["converged"]


def test_a_floor_above_a_ritz_value_is_refused():
    node = as_matrix(np.diag(np.linspace(0.1, 1, 30)))
    with pytest.raises(InputError, match="floor: expected at most the least"):
        run(node, method="slq", num_runs=4, num_steps=30, floor=0.2)


def test_steps_are_taken_until_the_rule_is_as_accurate_as_wanted():
    given = {"method": "slq", "num_steps": 5, "num_runs": 6, "damping": 0.01}
    (short,) = run(kernel(), **given)
    refined = run(kernel(), [0, 1, 2], rel_error=0.01, **given)
    assert not short["logdet_quadrature"] <= 0.01 * abs(short["logdet"])
    for arrays in refined:
        assert arrays["converged"]
        assert arrays["logdet_quadrature"] <= 0.01 * abs(arrays["logdet"])
        assert arrays["num_matvecs"] > short["num_matvecs"]
    # As many steps at once give the same, at no less work: the runs were continued.
    steps = int(refined[0]["num_matvecs"]) // 6
    (whole,) = run(kernel(), **{**given, "num_steps": steps})
    assert whole["num_matvecs"] == refined[0]["num_matvecs"]
    np.testing.assert_allclose(whole["logdet"], refined[0]["logdet"], rtol=1e-9)


def test_what_is_no_rule_is_not_refined():
    with pytest.raises(ValueError, match="rel_error cannot be combined with method me"):
        LogdetParams(method="meme", rel_error=0.01)


def waves(count, length):
    """Return 2 - 2 cos of so many angles of a circle of this length."""
    return 2 - 2 * np.cos(2 * np.pi * np.arange(count) / length)


# Graphs, and the eigenvalues of their Laplacians.
KNOWN = {
    "complete": ({"n": 60}, [0, *[60] * 59]),
    "cycle": ({"n": 3000}, waves(3000, 3000)),
    "path": ({"n": 2500}, waves(2500, 5000)),
    "hypercube": ({"d": 11}, [2 * bin(node).count("1") for node in range(2**11)]),
}


@pytest.mark.parametrize("model", KNOWN)
def test_graphs_of_known_spectra_need_no_basis(model):
    settings, eigenvalues = KNOWN[model]
    (made,) = compute("data.random_graph", [member_of_graph(model, **settings)])
    node = Graph("graph", "data.random_graph", {}, made.arrays, "of " + model)
    exact = np.log(np.array(eigenvalues) + 0.3).sum()
    of = {"operator": "laplacian", "damping": 0.3, "method": "slq"}
    of |= {"num_runs": 12, "num_steps": 40}
    for seed in range(3):
        full, none = (
            compute(
                KIND,
                [
                    member(
                        KIND, {**of, "reorthogonalize": mode, "seed": seed}, graph=node
                    )
                ],
            )[0].arrays
            for mode in ("full", "none")
        )
        error = abs(none["logdet"] - exact)
        assert error <= 5 * none["logdet_sem"] + 1e-9 * exact
        for name in ("logdet", "logdet_sem", "logdet_low", "num_matvecs"):
            assert none[name] == pytest.approx(full[name], rel=1e-8), name


def member_of_graph(model, **settings):
    return member("data.random_graph", {"model": model, **settings})


def test_runs_without_a_basis_go_on_until_they_are_resolved():
    node = matrix_of(
        "data.random_matrix", {"ensemble": "marchenko_pastur", "size": 300}
    )
    of = {"damping": 1e-3, "num_steps": 5, "rel_error": 1e-4, "num_runs": 6}
    full, none = (
        run(node, (0, 1), method="slq", reorthogonalize=mode, **of)
        for mode in ("full", "none")
    )
    for held, plain in zip(full, none, strict=True):
        assert plain["converged"]
        assert plain["logdet"] == pytest.approx(held["logdet"], rel=1e-6)
        assert plain["num_matvecs"] > 6 * 5


def test_without_a_basis_auto_is_quadrature():
    (found,) = run(kernel(), floor=1e-4, reorthogonalize="none", num_steps=60)
    assert found["rank"] == 0
    with pytest.raises(ValueError, match="reorthogonalize none cannot be combined"):
        LogdetParams(reorthogonalize="none", method="dense")
