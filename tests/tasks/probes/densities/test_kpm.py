"""Densities of moments by kernel polynomials, and their distribution functions."""

import math

import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.schemas.nodes import Moments
from curvflow.schemas.study.study import load_study
from curvflow.tasks.numerics.entropy import maxent as entropy
from tests.tasks.matrices import as_matrix
from tests.tasks.probes.graphs.test_deflated_probes import chebyshev, result
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.kpm"
ENDS = (-1.25, 1.25)


def given(means, *, covariance=np.nan, support=ENDS, draws=1, basis="chebyshev"):
    count = len(means)
    arrays = {
        "moments": np.asarray(means, dtype=np.float64),
        "moments_covariance": np.broadcast_to(covariance, (count, count)).copy(),
        "num_draws": np.array(draws),
        "basis": np.array(basis),
        "support": np.array(support),
        "size": np.array(60),
    }
    return Moments("moments", "probe.moments", {}, arrays, "given")


def run(node, kind=KIND, **params):
    (outcome,) = compute(kind, [member(kind, params, moments=node)])
    assert_declared(kind, outcome)
    return outcome.arrays


def exact(eigenvalues, orders=30):
    means = chebyshev(np.asarray(eigenvalues)[:, None], ENDS, orders)
    return given(np.ravel(means))


def spread_out(seed=0, size=60):
    """Eigenvalues of a random graph's normalized adjacency, and the matrix."""
    random = np.random.default_rng(seed)
    W = np.triu(random.random((size, size)) < 0.15, 1).astype(float)
    W += W.T
    root = np.sqrt(np.maximum(W.sum(1), 1))
    A = W / root[:, None] / root
    return np.linalg.eigvalsh(A), A


def fractions(values, x):
    """Return the fractions of eigenvalues below points and up to them."""
    sides = ("left", "right")
    return (np.searchsorted(values, x, side=side) / len(values) for side in sides)


def measured(A, seed, **params):
    asked = {"support": ENDS, "num_moments": 30, "num_probes": 20, "seed": seed}
    (outcome,) = compute(
        "probe.moments",
        [member("probe.moments", asked | params, matrix=as_matrix(A))],
    )
    return Moments("moments", "probe.moments", {}, outcome.arrays, str(seed))


def test_moments_of_the_semicircle_give_it_back():
    means = np.array([1.0, 0.0, -0.5] + [0.0] * 20)
    arrays = run(given(means, support=(-1.0, 1.0)), kernel="none", num_points=200)
    x = arrays["grid"]
    np.testing.assert_allclose(
        arrays["density"], 2 / np.pi * np.sqrt(1 - x**2), atol=1e-12
    )
    law = 0.5 + (x * np.sqrt(1 - x**2) + np.arcsin(x)) / np.pi
    np.testing.assert_allclose(arrays["cumulative"], law, atol=1e-12)
    assert np.isnan(arrays["density_sem"]).all()
    assert np.isnan(arrays["cumulative_low"]).all()


@pytest.mark.parametrize("kernel", ["jackson", "none"])
def test_the_density_integrates_to_the_distribution_function(kernel):
    values, _ = spread_out()
    arrays = run(exact(values), kernel=kernel, num_points=400)
    assert arrays["mass"].sum() == pytest.approx(1, abs=1e-12)
    middle = arrays["mass"].cumsum() - arrays["mass"] / 2
    np.testing.assert_allclose(arrays["cumulative"], middle, atol=3e-4)
    assert (arrays["density"] >= -1e-12).all() == (kernel == "jackson")


def test_a_point_is_jackson_s_kernel():
    arrays = run(exact([0.0], orders=41), num_points=2000)
    x, mass = arrays["grid"], arrays["mass"]
    # Weisse et al. (2006), Eq. (74): about pi / N of half the support.
    variance = 41 / 42 * np.sin(np.pi / 42) ** 2
    assert np.sqrt(mass @ x**2) == pytest.approx(1.25 * variance**0.5, rel=1e-9)
    # Exactly half of it is on either side.
    middle = np.interp(0.0, x, arrays["cumulative"])
    assert middle == pytest.approx(0.5, abs=1e-9)


def test_the_distribution_function_of_a_graph_is_near_the_dense_one():
    values, _ = spread_out()
    arrays = run(exact(values, orders=121))
    truth = np.searchsorted(values, arrays["grid"]) / len(values)
    apart = np.abs(arrays["cumulative"] - truth)
    assert apart.mean() < 0.003
    assert apart.max() < 0.02


def test_powers_are_turned_into_chebyshev_s_polynomials():
    values, _ = spread_out()
    powers = (values[:, None] ** np.arange(11)).mean(0)
    other = run(given(powers, basis="power"))
    np.testing.assert_allclose(
        other["density"], run(exact(values, orders=11))["density"], atol=1e-9
    )


def test_standard_errors_are_the_spread_of_repetitions_and_bounds_hold_the_truth():
    values, A = spread_out()
    results = [run(measured(A, seed), num_points=50) for seed in range(100)]
    found = {name: np.array([one[name] for one in results]) for name in results[0]}
    for name in ("density", "cumulative"):
        spread = found[name].std(0, ddof=1)
        told = np.sqrt((found[f"{name}_sem"] ** 2).mean(0))
        np.testing.assert_allclose(told, spread, rtol=0.25)
    # Exact for the expectation, which is the damped series of all eigenvalues.
    truth = run(exact(values, orders=31), num_points=50)["density"]
    holds = (found["density_low"] <= truth) & (truth <= found["density_high"])
    assert 0.92 < holds.mean() < 0.98
    x = results[0]["grid"]
    below, upto = (
        np.searchsorted(values, x, side=side) / len(values)
        for side in ("left", "right")
    )
    holds = (found["cumulative_low"] <= below) & (upto <= found["cumulative_high"])
    assert holds.mean(0).min() >= 0.95
    width = (found["cumulative_high"] - found["cumulative_low"]).mean()
    assert width < 0.15


@pytest.mark.parametrize("seed", range(3))
def test_exact_moments_bound_what_any_spectrum_with_them_has(seed):
    values = np.sort(np.random.default_rng(seed).choice([-1.2, -0.3, 0.4, 1.2], 9))
    means = exact(values, orders=21)["moments"]
    arrays = run(given(means, covariance=0.0, draws=5), num_points=333)
    below, upto = fractions(values, arrays["grid"])
    assert (arrays["cumulative_low"] <= below + 1e-12).all()
    assert (arrays["cumulative_high"] >= upto - 1e-12).all()
    # The arcsine law's bounds are 2 / (K + 1) apart everywhere.
    flat = run(given([1.0] + [0.0] * 20, covariance=0.0, draws=5))
    apart = flat["cumulative_high"] - flat["cumulative_low"]
    inside = (flat["cumulative_low"] > 0) & (flat["cumulative_high"] < 1)
    np.testing.assert_allclose(apart[inside], 2 / 21, rtol=1e-9)


@pytest.mark.parametrize("kind", [KIND, "probe.maxent"])
def test_known_eigenvalues_are_steps(kind):
    star = np.zeros((12, 12))
    star[0, 1:7] = star[1:7, 0] = 1  # six leaves alike
    for i in range(6, 11):
        star[i, i + 1] = star[i + 1, i] = 1
    node = result(
        Moments,
        "probe.moments",
        star,
        operator="normalized_laplacian",
        deflate=("twins",),
        support=[0.0, 2.0],
        num_moments=10,
        num_probes=40,
    )
    (outcome,) = compute(kind, [member(kind, {"atoms": "apart"}, moments=node)])
    assert_declared(kind, outcome)
    arrays, x = outcome.arrays, outcome.arrays["grid"]
    assert arrays["atom_values"].tolist() == [1.0]
    (count,) = arrays["atom_counts"]
    step = np.diff(np.interp([1 - 3e-3, 1 + 3e-3], x, arrays["cumulative"]))
    assert count / 12 < step < count / 12 + 0.01
    low, high = (arrays[f"cumulative_{end}"] for end in ("low", "high"))
    assert (low <= arrays["cumulative"] + 1e-9).all()
    assert (arrays["cumulative"] <= high + 1e-9).all()
    (within,) = compute(kind, [member(kind, {}, moments=node)])
    np.testing.assert_allclose(within.arrays["cumulative_low"], low, atol=1e-12)
    with pytest.raises(InputError, match="atoms: expected moments with eigenvalues"):
        compute(kind, [member(kind, {"atoms": "apart"}, moments=exact([0.0, 1.0]))])


@pytest.fixture(scope="module")
def repeated():
    """Densities of largest entropy of one matrix, by the vectors of sixty seeds."""
    _, A = spread_out()
    return [
        run(measured(A, seed, num_moments=8), "probe.maxent", num_points=50)
        for seed in range(60)
    ]


def test_the_errors_of_a_density_of_largest_entropy_are_the_spread_of_repetitions(
    repeated,
):
    values, _ = spread_out()
    found = {
        name: np.array([one[name] for one in repeated])
        for name in repeated[0]
        if name.startswith(("density", "cumulative"))
    }
    # Where the density nearly vanishes the first order is not enough.
    inside = found["density"].mean(0) > 0.1
    for name in ("density", "cumulative"):
        spread = found[name].std(0, ddof=1)[inside]
        told = np.sqrt((found[f"{name}_sem"] ** 2).mean(0))[inside]
        assert 0.85 < np.median(told / spread) < 1.15
        assert ((told > 0.6 * spread) & (told < 1.6 * spread)).mean() > 0.95
    below, upto = fractions(values, repeated[0]["grid"])
    holds = (found["cumulative_low"] <= below) & (upto <= found["cumulative_high"])
    assert holds.mean() >= 0.95


def test_an_interval_of_a_density_is_of_exact_moments(repeated):
    node = exact(spread_out()[0], orders=9)
    truth = run(node, "probe.maxent", num_points=50)["density"]
    low, high = (
        np.array([one[f"density_{end}"] for one in repeated]) for end in ("low", "high")
    )
    holds = ((low <= truth) & (truth <= high)).mean(0)
    assert 0.92 < holds.mean() < 0.98
    assert holds.min() > 0.83  # of 95 % of 60, below in one of a thousand cases
    # Within their errors the moments draw the density towards the prior.
    soft = np.array([one["density"] for one in repeated])
    assert ((soft < low) | (soft > high)).any()
    # Exact moments have no interval but themselves.
    arrays = run(given(node["moments"], covariance=0.0, draws=5), "probe.maxent")
    for end in ("low", "high"):
        np.testing.assert_allclose(
            arrays[f"density_{end}"], arrays["density"], atol=1e-300
        )


def test_ends_of_a_density_are_where_moments_that_are_off_lead_it():
    prior = entropy.prior("flat", ENDS, 100)
    moments = torch.tensor([-0.1, -0.4, 0.05, 0.2]).double()
    spread = torch.tensor([[3.0, 1, 0, 0], [1, 2, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    spread = 1e-4 * spread.double()

    def fitted(shift):
        return entropy.maxent(
            moments + shift, prior=prior, basis="chebyshev", support=ENDS
        )

    here, t = fitted(0.0), 0.7
    low, high = here.density_interval(spread, t)
    h = 1e-4
    unit = torch.eye(4).double()
    slopes_GK = torch.stack(
        [(fitted(h * e).density.log() - fitted(-h * e).density.log()) for e in unit], 1
    ) / (2 * h)
    for point in (3, 30, 66, 97):
        slope = slopes_GK[point]
        along = t * spread @ slope / (slope @ spread @ slope).sqrt()
        ends = sorted(float(fitted(s * along).density[point]) for s in (-1, 1))
        first = t * float((slope @ spread @ slope).sqrt())
        # The third order is left; no end is nearer than by the first one.
        assert float(low[point]) == pytest.approx(
            min(ends[0], float(here.density[point]) * math.exp(-first)), rel=1e-3
        )
        assert float(high[point]) == pytest.approx(
            max(ends[1], float(here.density[point]) * math.exp(first)), rel=1e-3
        )


def test_errors_of_masses_are_what_changes_of_the_moments_do():
    prior = entropy.prior("flat", ENDS, 100)
    moments, errors = (torch.zeros(4).double() + value for value in (-0.1, 0.02))
    step = torch.tensor([0.3, -1.0, 0.5, 0.2]).double()

    def fitted(shift):
        return entropy.maxent(
            moments + shift * step, errors, prior=prior, basis="chebyshev", support=ENDS
        )

    told = fitted(0).errors_of_masses(step[:, None] * step)
    more, less = fitted(1e-3), fitted(-1e-3)
    for name, found in told._asdict().items():
        slope = (getattr(more, name) - getattr(less, name)) / 2e-3
        np.testing.assert_allclose(found, slope.abs(), rtol=1e-3, atol=1e-6)


def test_one_vector_tells_no_error_of_either():
    node = measured(spread_out()[1], 0, num_moments=6)
    node.arrays["moments_covariance"][:] = np.nan
    arrays = run(node, "probe.maxent")
    ends = (
        "density_sem",
        "density_low",
        "density_high",
        "cumulative_sem",
        "cumulative_low",
        "cumulative_high",
    )
    assert all(np.isnan(arrays[name]).all() for name in ends)
    assert arrays["cumulative"][-1] == pytest.approx(1, abs=1e-3)


STUDY = """\
study: densities
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 60, p: 0.2}
  moments: {use: probe.moments, graph: graph, num_moments: 8, num_probes: 6,
            support: [0, 2]}
  density: {use: probe.kpm, moments: moments, num_points: 60}
  more: {use: probe.kpm, moments: moments, num_points: 60, kernel: none}
"""


def test_it_is_drawn_and_compared_by_what_needs_no_multipliers(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        STUDY
        + """\
  ritz: {use: probe.spectrum, graph: graph, num_runs: 2, num_steps: 8}
  picture: {use: figure.density, of: ritz, density: density}
  apart: {use: aggregate.spectral_distance, of: [density, more],
          divergence: wasserstein1}
"""
    )
    done = curvflow.run(file, store=tmp_path / "store")
    row = done["apart"]
    assert 0 < float(row["distance"].item()) < 0.1
    assert np.isnan(row["distance_sem"].item())
    assert "density" in done["picture"]["source"].values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.cluster_count, density: density, method: maxent",
            "expected a density of probe.maxent, got 'density' of probe.kpm",
        ),
        (
            "aggregate.spectral_distance, of: [density, more], divergence: kl",
            "expected a stage of probe.maxent, got 'density' of probe.kpm",
        ),
        (
            "probe.kpm, moments: moments, num_moments: 9",
            "expected at most the 8 of 'moments', got 9",
        ),
    ],
)
def test_what_needs_more_is_refused_while_planning(line, message):
    with pytest.raises(StudyError, match=message):
        load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")
