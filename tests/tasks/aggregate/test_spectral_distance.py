"""Distances of spectra along axes, their errors and the floor of their noise."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Member, Moments, Spectrum
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.registry import Machine, find
from tests.flows.toys import run
from tests.tasks.matrices import as_matrix
from tests.tasks.toys import assert_declared, compute, member, with_spectrum

KIND = "aggregate.spectral_distance"
SUPPORT = (0.0, 1.0)
SIZE, VECTORS, SEEDS = 150, 24, 24


def eigenvalues(power):
    return ((np.arange(SIZE) + 0.5) / SIZE) ** power


@cache
def matrix_of(power):
    return as_matrix(with_spectrum(eigenvalues(power), 0).numpy())


@cache
def moments(power):
    """Moments of one matrix by vectors of many seeds."""
    matrix = matrix_of(power)
    asked = {"support": SUPPORT, "num_moments": 6, "num_probes": VECTORS}
    members = [
        member("probe.moments", {**asked, "seed": seed}, matrix=matrix)
        for seed in range(SEEDS)
    ]
    return [outcome.arrays for outcome in compute("probe.moments", members)]


def fitted(arrays, **coords):
    taken = {name: arrays[name] for name in Moments.takes}
    asked = {"num_points": 100, "error_floor": 0.01}
    node = Moments("moments", "probe.moments", coords, taken, "")
    (outcome,) = compute("probe.maxent", [member("probe.maxent", asked, moments=node)])
    return spectrum("probe.maxent", outcome.arrays, **coords)


def spectrum(kind, arrays, *, stage="density", **coords):
    names = (*Spectrum.takes, *Spectrum.takes_if_there)
    taken = {name: arrays[name] for name in names if name in arrays}
    return Spectrum(stage, kind, coords, taken, "")


@cache
def density(power, seed=0):
    return fitted(moments(power)[seed], power=power, seed=seed)


@cache
def ritz(power, probe="probe.spectrum", **params):
    asked = params or ({} if probe == "probe.dense" else {"num_runs": 12})
    matrix = matrix_of(power)
    (outcome,) = compute(probe, [member(probe, asked, matrix=matrix)])
    return spectrum(probe, outcome.arrays, stage="runs", power=power)


def distances(of, target=None, **params):
    given = {"divergence": "symmetric_kl", "num_resamples": 200, **params}
    inputs = {"of": of} | ({"target": [target]} if target else {})
    checked = find_kind(KIND).params(**given)
    (outcome,) = find(KIND).compute([Member(checked, inputs)], Machine())
    assert_declared(KIND, outcome)
    return outcome.arrays


def test_all_pairs_of_an_axis_have_a_row_and_both_places_in_the_matrix():
    table = distances([density(p) for p in (1, 2, 3)], along="power")
    assert table["quantity"].tolist() == [
        "distance: 1 against 2",
        "distance: 1 against 3",
        "distance: 2 against 3",
    ]
    assert table["value"].tolist() == [1, 1, 2]
    assert table["item"].tolist() == ["1", "2", "3"]
    assert table["labels"].tolist() == [["1"], ["2"], ["3"]]
    matrix = table["matrix"]
    assert matrix[np.triu_indices(3, 1)].tolist() == table["distance"].tolist()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    assert table["converged"].all()


def test_stages_may_have_axes_of_their_own():
    small, large = density(1), density(2)
    other = replace(large, stage="other", coords={"size": 9})
    table = distances([small, other], along=["power", "size"])
    assert table["quantity"].tolist() == [
        f"distance: {small.stage}, 1 against other, 9"
    ]
    assert table["axis"].tolist() == ["stage", "power", "size"]
    assert table["labels"].tolist() == [[small.stage, "1", ""], ["other", "", "9"]]


def test_relative_entropies_have_both_directions():
    table = distances([density(1), density(2)], along="power", divergence="kl")
    assert table["quantity"].tolist() == [
        "distance: 1 against 2",
        "distance: 2 against 1",
    ]
    both = distances([density(1), density(2)], along="power")["distance"]
    assert table["distance"].mean() == pytest.approx(both.item(), rel=1e-9)
    assert abs(np.diff(table["distance"]).item()) > 0.01


def test_one_label_or_a_target_is_what_others_are_compared_with():
    three = [density(p) for p in (1, 2, 3)]
    everything = distances(three, along="power")
    table = distances(three, along="power", to=2)
    assert table["quantity"].tolist() == [
        "distance: 1 against 2",
        "distance: 3 against 2",
    ]
    assert table["distance"].tolist() == everything["distance"][[0, 2]].tolist()
    target = replace(density(2), stage="given", coords={})
    table = distances(three, target, along="power")
    assert table["against"].tolist() == ["given"] * 3
    assert table["value"].tolist() == [1, 2, 3]
    assert table["distance"][1] == 0
    assert np.argmin(table["distance"]) == 1


def test_several_stages_need_no_axis():
    two = [replace(density(p), stage=f"of{p}", coords={}) for p in (1, 2)]
    table = distances(two)
    assert table["quantity"].tolist() == ["distance: of1 against of2"]
    assert table["axis"].tolist() == ["stage"]


def test_the_error_of_a_distance_is_its_spread_over_the_vectors():
    exact = {"multipliers_covariance": np.zeros((6, 6))}
    target = replace(density(2), stage="given", arrays={**density(2).arrays, **exact})
    tables = [distances([density(1, s)], target) for s in range(SEEDS)]
    found, errors, biases = (
        np.array([table[name].item() for table in tables])
        for name in ("distance", "distance_sem", "bias")
    )
    spread = found.std(ddof=1)
    low, high = (
        spread * math.sqrt((SEEDS - 1) / q)
        for q in stats.chi2.ppf([0.9995, 0.0005], SEEDS - 1)
    )
    assert low < np.sqrt((errors**2).mean()) < high
    assert (biases > 0).all()


def test_the_floor_is_the_distance_of_two_halves_of_the_vectors():
    halves = []
    for arrays in moments(2):
        draws = arrays["moment_draws"]
        halves.append(
            [
                fitted(
                    arrays
                    | {
                        "moments": half.mean(0),
                        # Weighed as all are, so that only the vectors differ.
                        "moments_covariance": arrays["moments_covariance"],
                    }
                )
                for half in (draws[: VECTORS // 2], draws[VECTORS // 2 :])
            ]
        )
    found = [
        distances([a], replace(b, stage="b"))["distance"].item() for a, b in halves
    ]
    floors = [distances([density(2, s)], density(1))["floor"].item() for s in range(4)]
    error = np.std(found, ddof=1) / math.sqrt(len(found))
    own = distances([density(2)], density(2))["floor"].item()
    assert abs(np.mean(found) - own) < 4 * error
    assert min(floors) > 0


@pytest.mark.parametrize("divergence", ["wasserstein1", "heat_trace"])
def test_ritz_data_serve_and_all_eigenvalues_have_no_error(divergence):
    exact = [ritz(power, "probe.dense") for power in (1, 2)]
    known = distances(exact, along="power", divergence=divergence)
    assert known["distance_sem"].item() == pytest.approx(0, abs=1e-12)
    assert known["floor"].item() == pytest.approx(0, abs=1e-12)
    if divergence == "wasserstein1":
        wanted = stats.wasserstein_distance(eigenvalues(1), eigenvalues(2))
    else:
        times = np.logspace(-2, 2, 250)
        one, two = (np.exp(-np.outer(times, eigenvalues(p))).mean(1) for p in (1, 2))
        wanted = np.linalg.norm(one - two)
    assert known["distance"].item() == pytest.approx(wanted, rel=1e-9)
    runs = distances([ritz(1), ritz(2)], along="power", divergence=divergence)
    assert runs["distance_low"].item() <= wanted <= runs["distance_high"].item()
    assert runs["distance_sem"].item() > 0


def test_heat_traces_of_negative_eigenvalues_are_refused():
    below = ritz(1, "probe.dense")
    arrays = {**below.arrays, "ritz_values": below["ritz_values"] - 0.1}
    pair = [below, replace(below, stage="below", arrays=arrays)]
    with pytest.raises(InputError, match=r"of 0 or more for heat_trace, got -0\.0967"):
        distances(pair, divergence="heat_trace")
    assert distances(pair, divergence="wasserstein1")["distance"] == pytest.approx(0.1)


@pytest.mark.parametrize("num_steps", [20, 10_000])
def test_single_vectors_tell_no_error(num_steps):
    # Of as many steps as eigenvalues their weights are still those of the vector.
    runs = [ritz(p, num_runs=1, num_steps=num_steps) for p in (1, 2)]
    table = distances(runs, along="power", divergence="wasserstein1")
    assert np.isfinite(table["distance"].item())
    for name in ("distance_sem", "floor", "distance_low"):
        assert np.isnan(table[name].item())


def test_densities_stored_without_their_family_serve_where_masses_do():
    names = ("size", "grid", "mass", "multipliers", "converged")
    old = [
        replace(d, arrays={name: d[name] for name in names})
        for d in (density(1), density(2))
    ]
    new = distances([density(1), density(2)], along="power", divergence="wasserstein1")
    table = distances(old, along="power", divergence="wasserstein1")
    assert table["distance"].item() == pytest.approx(new["distance"].item(), rel=1e-9)
    assert np.isnan(table["distance_sem"].item())
    with pytest.raises(InputError, match="before these were kept"):
        distances(old, along="power")


def test_diverged_spectra_are_counted():
    lost = replace(density(2), status="diverged", arrays={})
    table = distances([density(1), lost], along="power")
    assert np.isnan(table["distance"].item())
    assert table["diverged"].tolist() == [1]


@pytest.mark.parametrize(
    ("of", "params", "words"),
    [
        ([1], {"along": "power"}, "two spectra or more"),
        ([1, 2], {"along": "power", "to": 5}, "labels of one spectrum, got '5'"),
    ],
)
def test_what_cannot_be_compared_is_refused(of, params, words):
    with pytest.raises(InputError, match=words):
        distances([density(p) for p in of], **params)


def test_different_supports_are_refused_in_one_line():
    other = replace(
        density(2), arrays={**density(2).arrays, "support": np.array([0.0, 2.0])}
    )
    with pytest.raises(InputError, match=r"one support, got \[0, 1\] and \[0, 2\]"):
        distances([density(1), other], along="power")
    distances([density(1), other], along="power", divergence="wasserstein1")


STUDY = """\
study: compared
axes: {p: [0.1, 0.3]}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 40, p: "${p}"}
  moments: {use: probe.moments, graph: graph, num_moments: 4, num_probes: 4,
            support: [0, 2]}
  density: {use: probe.maxent, moments: moments}
  loose: {use: probe.moments, graph: graph, num_moments: 4, num_probes: 4}
  vague: {use: probe.maxent, moments: loose}
  orders: {use: probe.maxent, moments: known, num_moments: 4}
  ring: {use: data.random_graph, model: cycle, n: 9}
  known: {use: probe.moments, graph: ring, num_moments: 4, num_probes: 4,
          support: [0, 2]}
  wide: {use: probe.maxent, moments: moments, support: [-1, 2]}
  narrow: {use: probe.maxent, moments: moments, support: [0, 2]}
  fixed: {use: probe.maxent, moments: known}
  spectrum: {use: probe.spectrum, graph: graph, num_runs: 2, num_steps: 5}
  distance: {use: aggregate.spectral_distance, of: density, along: p,
             divergence: symmetric_kl, num_resamples: 10}
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("of: spectrum, along: p, divergence: js", "stage of probe.maxent, got 'spec"),
        ("of: density, along: p, to: 0.2, divergence: kl", "a label of axis 'p'"),
        (
            "of: density, target: fixed, along: p, to: 0.1, divergence: kl",
            "'to' cannot be combined with 'target'",
        ),
        (
            "of: density, target: narrow, along: p, divergence: kl",
            "'narrow' without the axis, got 'p'",
        ),
        ("of: density, along: q, divergence: kl", "expected a dimension"),
        ("of: density, along: p, divergence: kl, times: [1]", "combined with kl"),
        (
            "of: spectrum, along: p, divergence: heat_trace, times: [-1]",
            "times of 0 or more, got -1",
        ),
        (
            "of: [wide, narrow], along: p, divergence: symmetric_kl",
            r"one support of what is taken together, got \[-1.0, 2.0\] and",
        ),
        (
            "of: vague, along: p, divergence: kl",
            "got what 'loose' measures each time. Give it a support",
        ),
        (
            "of: [wide, density], along: p, divergence: kl",
            r"got \[-1.0, 2.0\] and \[0.0, 2.0\]. Give wide and moments one",
        ),
        ("of: graph, along: p, divergence: kl", "returns Spectrum"),
    ],
)
def test_what_planning_can_see_is_refused_while_planning(line, words):
    with pytest.raises(StudyError, match=words):
        load_study(f"{STUDY}  asked: {{use: {KIND}, {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    "line",
    [
        "of: vague, along: p, divergence: wasserstein1",
        "of: density, target: fixed, along: p, divergence: kl",
        "of: [fixed, orders], divergence: kl",
        "of: [density, fixed], along: p, divergence: kl",
    ],
)
def test_supports_that_are_one_or_do_not_matter_are_taken(line):
    load_study(f"{STUDY}  asked: {{use: {KIND}, {line}}}\n", file="study.yaml")


def test_another_divergence_of_a_finished_study_executes_no_probe():
    store = MemoryStore()

    def executed(**changes):
        spare = ("wide", "narrow", "loose", "vague", "orders")
        lines = [s for s in STUDY.splitlines() if not s.strip().startswith(spare)]
        text = "\n".join(lines)
        for old, new in changes.items():
            text = text.replace(old, new)
        return {
            s: n
            for s, n in run(store, text=text).record.counts["executed"].items()
            if n
        }

    probes = ("graph", "moments", "density", "spectrum")
    target = dict.fromkeys(("ring", "known", "fixed"), 1)
    assert executed() == {**dict.fromkeys(probes, 2), **target, "distance": 1}
    assert executed(symmetric_kl="js") == {"distance": 1}
    added = executed(**{"0.3]": "0.3, 0.2]"})
    assert added == {**dict.fromkeys(probes, 1), "distance": 1}
