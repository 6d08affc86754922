"""Spectra as weighted points and smoothed densities, and random-matrix laws."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.figures import MarchenkoPastur, Semicircle
from curvflow.tasks.drawing.spectra import (
    WeightedPoints,
    law_atom,
    law_density,
    law_support,
    matrix_points,
    nodes_with_equal_labels,
    ritz_points,
    runs_sentence,
    smoothed_density,
)
from tests.tasks.figures.ritz_nodes import as_matrix, ritz, wigner, wishart


def test_runs_of_all_nodes_have_equal_weight():
    points = ritz_points([ritz(wigner(20), 4, runs) for runs in (1, 3)])
    assert len(points.values) == 16
    assert points.weights.sum() == pytest.approx(1, rel=1e-12)
    assert (np.diff(points.values) >= 0).all()


def test_nodes_behind_a_breakdown_are_left_out():
    node = ritz(wigner(20), 4)
    node["ritz_values"][0, 3], node["ritz_weights"][0] = np.nan, [0.5, 0.25, 0.25, 0]
    points = ritz_points([node])
    assert len(points.values) == 3
    assert points.weights.sum() == 1


def test_a_smooth_density_has_the_integral_1():
    points = WeightedPoints(np.linspace(-1, 1, 1000), np.full(1000, 1e-3))
    grid = np.linspace(-2, 2, 4001)
    density = smoothed_density(points, grid, 0.1)
    assert np.trapezoid(density, grid) == pytest.approx(1, rel=1e-9)
    assert density[2000] == pytest.approx(0.5, rel=1e-2)


def test_a_matrix_gives_its_eigenvalues_or_its_diagonal():
    matrix = wigner(30)
    values = matrix_points(as_matrix(matrix), "eigenvalues").values
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), rtol=1e-12)
    diagonal = matrix_points(as_matrix(matrix), "diagonal")
    assert diagonal.values.tolist() == sorted(np.diag(matrix))
    assert diagonal.weights.sum() == pytest.approx(1)


def test_a_matrix_that_is_not_dense_is_refused():
    with pytest.raises(InputError, match="matrix: expected the form dense"):
        matrix_points(as_matrix(wigner(3), "sparse"), "diagonal")


def test_all_eigenvalues_of_a_large_matrix_are_refused():
    large = as_matrix(np.broadcast_to(0.0, (5000, 5000)))
    with pytest.raises(InputError, match="at most 4000 rows for eigenvalues, got 5000"):
        matrix_points(large, "eigenvalues")


def test_matrices_are_found_by_the_axes_they_share():
    matrices = [as_matrix(wigner(4), seed=seed) for seed in (0, 1)]
    assert (
        nodes_with_equal_labels(ritz(wigner(4), 2, seed=1, m=5), matrices)
        == matrices[1:]
    )
    assert nodes_with_equal_labels(ritz(wigner(4), 2, m=5), matrices) == matrices


def test_runs_are_counted_in_words():
    sentence = "Ritz values of 1 Lanczos run of 3 steps"
    assert runs_sentence([ritz(wigner(9), 3)]) == sentence
    several = [ritz(wigner(9), steps, 2) for steps in (3, 5)]
    assert runs_sentence(several) == (
        "Ritz values of 2 Lanczos runs of 3, 5 steps at each of 2 nodes"
    )
    assert runs_sentence([]) == "Ritz values of no Lanczos runs"


def test_a_whole_matrix_is_no_lanczos_run():
    whole = replace(ritz(wigner(9), 9), kind="probe.dense")
    assert runs_sentence([whole]) == "All eigenvalues of 1 dense matrix of 9 rows"
    assert runs_sentence([whole, ritz(wigner(9), 3), whole]) == (
        "Ritz values of 1 Lanczos run of 3 steps, and all eigenvalues of 1 dense "
        "matrix of 9 rows at each of 2 nodes"
    )


LAWS = [
    Semicircle(radius=3.0),
    MarchenkoPastur(ratio=0.5),
    MarchenkoPastur(ratio=2.0, variance=1.5),
]


@pytest.mark.parametrize("law", LAWS)
def test_a_density_and_its_atom_have_the_integral_1(law):
    low, high = law_support(law)
    # Angles, so that the roots at the ends cost no accuracy.
    angles = (np.arange(4000) + 0.5) * np.pi / 4000
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angles)
    weights = (high - low) / 2 * np.sin(angles) * np.pi / 4000
    whole = law_density(law, x) @ weights + law_atom(law)
    assert whole == pytest.approx(1, rel=1e-6)
    assert law_density(law, np.array([low - 1, high + 1])).tolist() == [0, 0]


def test_the_eigenvalues_of_random_matrices_follow_their_law():
    cases = [
        (Semicircle(radius=2 * 400**0.5), wigner(400)),
        (MarchenkoPastur(ratio=0.5), wishart(300, 600)),
        (MarchenkoPastur(ratio=2.0), wishart(300, 150)),
    ]
    for law, matrix in cases:
        values = np.linalg.eigvalsh(matrix)
        low, high = law_support(law)
        middle = (low + high) / 2
        inside = (values > middle) & (values < high)
        x = np.linspace(middle, high, 2001)
        share = np.trapezoid(law_density(law, x), x)
        assert inside.mean() == pytest.approx(share, abs=0.02)
        assert (np.abs(values) < 1e-9).mean() == pytest.approx(law_atom(law), abs=0.01)
