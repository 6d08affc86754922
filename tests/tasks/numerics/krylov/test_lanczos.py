"""Lanczos against dense eigenvalues and known spectra."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, stream
from curvflow.tasks.numerics.krylov.lanczos import LanczosRuns, joined, lanczos
from curvflow.tasks.numerics.krylov.quadrature import distribution_bounds
from curvflow.tasks.numerics.krylov.ritz_spectra import (
    best_run,
    degeneracy,
    distinct,
)
from tests.tasks.toys import random_symmetric, with_spectrum


def starts(models, size, count, seed=0):
    generator = stream(seed, "t")
    return torch.randn(models, size, count, generator=generator, dtype=torch.float64)


def measure(A_MDD, start_MDS):
    """Eigenvalues (M, D) and the weight of each in each start, (M, D, S)."""
    values, vectors = torch.linalg.eigh(A_MDD)
    unit = start_MDS / start_MDS.norm(dim=1, keepdim=True)
    return values, (vectors.mT @ unit).square()


def dense(*spectra):
    return torch.stack([with_spectrum(s, seed=n) for n, s in enumerate(spectra)])


@pytest.mark.parametrize("num_steps", [1, 4, 10])
def test_rules_are_exact_up_to_degree_2m_minus_1_and_not_beyond(num_steps):
    A = torch.stack([random_symmetric(40, seed=n) / 9 for n in range(3)])
    start = starts(3, 40, 2)
    values, weights = measure(A, start)
    result = lanczos(BatchedDense(A), start, num_steps=num_steps)
    for degree in range(2 * num_steps + 1):
        exact = (weights * values.unsqueeze(2) ** degree).sum(1)
        rule = (result.weights * result.values**degree).sum(2)
        error = ((rule - exact) / exact.abs().clamp_min(1)).abs().max()
        assert (error < 1e-11) == (degree < 2 * num_steps)


def test_residuals_are_those_of_the_ritz_vectors():
    A = torch.stack([random_symmetric(30, seed=n) for n in range(2)])
    result = lanczos(BatchedDense(A), starts(2, 30, 3), num_steps=8, vectors=True)
    for s in range(3):
        U = result.vectors[:, s]
        gaps = (A @ U - U * result.values[:, s].unsqueeze(1)).norm(dim=1)
        torch.testing.assert_close(gaps, result.residuals[:, s], rtol=1e-9, atol=1e-12)
        eye = torch.eye(8).double().expand(2, -1, -1)
        torch.testing.assert_close(U.mT @ U, eye, rtol=0, atol=1e-13)


def test_some_eigenvalue_lies_within_every_residual():
    A = random_symmetric(50, seed=4)[None]
    result = lanczos(BatchedDense(A), starts(1, 50, 2), num_steps=12)
    exact = torch.linalg.eigvalsh(A)[0]
    nearest = (result.values.unsqueeze(3) - exact).abs().amin(3)
    assert (nearest <= result.residuals + 1e-12).all()


def test_as_many_steps_as_rows_find_every_eigenvalue_and_no_more_are_made():
    A = random_symmetric(12, seed=1)[None]
    result = lanczos(BatchedDense(A), starts(1, 12, 1), num_steps=99)
    np.testing.assert_allclose(
        result.values[0, 0], torch.linalg.eigvalsh(A)[0], rtol=1e-10
    )
    assert result.steps.tolist() == [[12]]


@pytest.mark.parametrize("value", [1.0, 0.0, -3.0])
def test_a_multiple_of_the_identity_breaks_down_at_once(value):
    A = torch.eye(9).double()[None] * value
    result = lanczos(BatchedDense(A), starts(1, 9, 2), num_steps=5)
    assert result.steps.tolist() == [[1, 1]]
    np.testing.assert_allclose(result.values[0, :, 0], value)
    assert result.weights[0, :, 0].tolist() == [1, 1]
    assert result.values[..., 1:].isnan().all()
    assert (result.weights[..., 1:] == 0).all()
    assert result.residuals[..., 1:].isnan().all()


class Unit(BatchedDense):
    """The identity, which returns what it is given."""

    def __matmul__(self, columns):
        return columns


def test_a_product_may_lie_where_its_factor_does():
    start = starts(1, 5, 1)
    result = lanczos(
        Unit(torch.eye(5)[None].double()), start, num_steps=3, vectors=True
    )
    assert result.values[0, 0, 0] == pytest.approx(1.0)
    unit = (start / start.norm())[0, :, 0]
    assert torch.allclose(result.vectors[0, 0, :, 0].abs(), unit.abs())


def test_a_start_in_an_invariant_subspace_breaks_down_alone():
    d = torch.tensor([5.0, 2.0, -1.0, 0.5, 0.25, 0.125]).double()
    start = torch.zeros(1, 6, 2).double()
    start[0, :2, 0], start[0, :, 1] = 1, 1
    result = lanczos(BatchedDense(torch.diag(d)[None]), start, num_steps=6)
    assert result.steps.tolist() == [[2, 6]]
    np.testing.assert_allclose(result.values[0, 0, :2], [2, 5], rtol=1e-14)
    np.testing.assert_allclose(result.weights[0, 0, :2], [0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(result.values[0, 1], sorted(d.tolist()), rtol=1e-12)


def test_a_repeated_eigenvalue_is_one_node_of_the_joint_weight():
    A, start = dense([5.0] * 4 + [1.0] * 10 + [-2.0] * 6), starts(1, 20, 1)
    values, weights = measure(A, start)
    result = lanczos(BatchedDense(A), start, num_steps=10)
    for value in (5, 1, -2):
        is_it = (result.values[0, 0] - value).abs() < 1e-10
        exact = weights[0, (values[0] - value).abs() < 1e-10].sum()
        assert result.weights[0, 0, is_it].sum().item() == pytest.approx(exact.item())


@pytest.mark.parametrize(
    ("sketch", "low", "high"),
    [
        (lambda X: (X + X.T) / (2 * len(X)) ** 0.5, -2, 2),
        (lambda X: X[:, :200] @ X[:, :200].T / 200, 0, (1 + 2**0.5) ** 2),
    ],
    ids=["semicircle", "marchenko-pastur"],
)
def test_random_matrices_have_the_support_of_their_law(sketch, low, high):
    X = torch.randn(400, 400, generator=stream(0, "law"), dtype=torch.float64)
    result = lanczos(BatchedDense(sketch(X)[None]), starts(1, 400, 2), num_steps=30)
    values = result.values[result.weights > 1e-9]
    assert values.min().item() == pytest.approx(low, abs=0.12)
    assert values.max().item() == pytest.approx(high, abs=0.25)


def test_a_spike_is_found_in_few_steps_with_its_weight():
    d = torch.cat([torch.linspace(0, 1, 199), torch.tensor([30.0])]).double()
    start = starts(1, 200, 1)
    result = lanczos(BatchedDense(torch.diag(d)[None]), start, num_steps=8)
    assert result.values[0, 0, -1].item() == pytest.approx(30, rel=1e-12)
    weight = (start[0, -1, 0] / start[0, :, 0].norm()) ** 2
    assert result.weights[0, 0, -1].item() == pytest.approx(weight.item(), rel=1e-10)


def test_extreme_values_keep_to_the_bound_of_kaniel_and_paige():
    d = torch.linspace(0, 1, 60).double() ** 2
    start = starts(1, 60, 1)
    result = lanczos(BatchedDense(torch.diag(d)[None]), start, num_steps=9)
    ratio = (d[-1] - d[-2]) / (d[-2] - d[0])
    cosine = (start[0, -1, 0] / start[0, :, 0].norm()).abs()
    chebyshev = torch.cosh(8 * torch.acosh(1 + 2 * ratio))
    tangent = torch.tan(torch.acos(cosine))
    bound = d[-1] - (d[-1] - d[0]) * (tangent / chebyshev) ** 2
    assert bound <= result.values[0, 0, -1] <= d[-1] + 1e-14


def test_a_shift_and_a_change_of_sign_carry_over():
    A, start = random_symmetric(25, seed=2)[None], starts(1, 25, 1)
    eye = torch.eye(25).double()
    one = lanczos(BatchedDense(A), start, num_steps=6)
    other = lanczos(BatchedDense(3 * eye - A), start, num_steps=6)
    np.testing.assert_allclose(other.values.flip(2), 3 - one.values, rtol=1e-12)
    np.testing.assert_allclose(other.weights.flip(2), one.weights, rtol=1e-9)


def test_results_do_not_depend_on_siblings():
    A = dense(np.linspace(-1, 1, 30), [1.0] * 30, np.geomspace(1, 1e-6, 30))
    start = starts(3, 30, 4)
    together = lanczos(BatchedDense(A), start, num_steps=7)
    for m in range(3):
        alone = lanczos(BatchedDense(A[[m, m]]), start[[m, m]][..., :2], num_steps=7)
        for name in ("values", "weights"):
            torch.testing.assert_close(
                getattr(alone, name)[0],
                getattr(together, name)[m, :2],
                rtol=1e-10,
                atol=1e-12,
                equal_nan=True,
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_basis_is_orthogonal_to_the_precision_of_the_products(dtype):
    A = dense([100.0, 10.0, *np.linspace(0, 1, 198)])
    start = starts(1, 200, 1)
    result = lanczos(BatchedDense(A.to(dtype)), start, num_steps=40, vectors=True)
    U, eps = result.vectors[0, 0], torch.finfo(dtype).eps
    assert U.dtype == torch.float64
    assert (U.T @ U - torch.eye(40)).abs().max() < 10 * eps
    near_100 = (result.values - 100).abs() < 1e-3
    assert near_100.sum() == 1
    reference = lanczos(BatchedDense(A), start, num_steps=40)
    np.testing.assert_allclose(
        result.values[..., -2:], reference.values[..., -2:], 1e-6
    )


def test_residuals_are_no_less_than_the_rounding_of_the_products():
    A = dense([100.0, 10.0, *np.linspace(0, 1, 198)])
    start = starts(1, 200, 1)
    exact = torch.linalg.eigvalsh(A)[0]
    for dtype in (torch.float32, torch.float64):
        result = lanczos(BatchedDense(A.to(dtype)), start, num_steps=40)
        error = (result.values[0, 0, -2:] - exact[-2:]).abs()
        floor = torch.finfo(dtype).eps * 99
        assert (result.residuals >= floor).all()
        assert (error <= 2 * result.residuals[0, 0, -2:]).all()


def test_runs_are_joined_in_order():
    A, start = random_symmetric(15, seed=3)[None], starts(1, 15, 3)
    whole = lanczos(BatchedDense(A), start, num_steps=5)
    parts = [
        lanczos(BatchedDense(A), start[..., s], num_steps=5)
        for s in (slice(0, 1), slice(1, 3))
    ]
    torch.testing.assert_close(joined(parts).values, whole.values)
    assert joined(parts).steps.tolist() == [[5, 5, 5]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_products_that_are_not_finite_are_refused(bad):
    A = random_symmetric(5, seed=0)[None]
    A[0, 2, 2] = bad
    with pytest.raises(InputError, match="operator: expected finite products"):
        lanczos(BatchedDense(A), starts(1, 5, 1), num_steps=3)


def test_a_start_of_zeros_is_refused():
    with pytest.raises(InputError, match="start: expected finite vectors"):
        lanczos(BatchedDense(torch.eye(3)[None]), torch.zeros(1, 3, 1), num_steps=2)


def test_runs_that_are_continued_are_those_made_at_once():
    # The last ends early: its matrix has four eigenvalues.
    few = [*[1.0] * 10, *[2.0] * 10, *[3.0] * 10, *[5.0] * 10]
    A = dense(np.linspace(-1, 3, 40), np.geomspace(1e-3, 1, 40), few)
    start = starts(3, 40, 2)
    runs = LanczosRuns(BatchedDense(A), start)
    for num_steps in (3, 3, 9, 20):
        parts = runs.extended(num_steps, vectors=True)
        whole = lanczos(BatchedDense(A), start, num_steps=num_steps, vectors=True)
        assert torch.equal(parts.steps, whole.steps)
        for name in ("values", "weights", "residuals"):
            torch.testing.assert_close(
                getattr(parts, name), getattr(whole, name), equal_nan=True
            )
        assert parts.vectors is not None
        torch.testing.assert_close(parts.vectors.abs(), whole.vectors.abs())
    runs.select(torch.tensor([2, 0]))
    rest = runs.extended(30)
    whole = lanczos(BatchedDense(A[[2, 0]]), start[[2, 0]], num_steps=30)
    assert torch.equal(rest.steps, whole.steps)
    torch.testing.assert_close(rest.values[:, :, :4], whole.values[:, :, :4])


# Outliers that are found in few steps, and an atom of 20 zeros.
SPIKED = torch.cat(
    [torch.tensor([15.0, 12.0, -6.0]), torch.zeros(20), torch.linspace(0.5, 1.5, 177)]
).double()


@pytest.fixture(scope="module")
def lost():
    """Runs of ten times the steps after which their bases are not orthogonal."""
    start = starts(1, 200, 3).sign()
    A = BatchedDense(torch.diag(SPIKED)[None])
    return lanczos(A, start, num_steps=150, reorthogonalize="none")


def test_a_basis_that_is_not_kept_orthogonal_finds_copies(lost):
    num_near = (lost.values - 15).abs().lt(1e-9).sum(2)
    assert (num_near >= 5).all()
    assert lost.has_copies
    united = distinct(lost)
    assert ((united.values - 15).abs().lt(1e-9).sum(2) == 1).all()
    torch.testing.assert_close(united.weights.sum(2), lost.weights.sum(2))


@pytest.mark.parametrize(
    "f", [torch.exp, torch.abs, torch.square, lambda x: 1 / (x + 7)]
)
def test_copies_do_no_harm_to_quadrature(lost, f):
    shares = starts(1, 200, 3).sign().square()[0] / 200
    exact = (f(SPIKED)[:, None] * shares).sum(0)
    rule = (lost.weights * f(lost.values)).sum(2)[0]
    torch.testing.assert_close(rule, exact, rtol=1e-10, atol=0)


@pytest.mark.parametrize("x", [-7.0, -1.0, 0.25, 0.99, 1.2, 13.0, 16.0])
def test_copies_do_no_harm_to_bounds(lost, x):
    low, high = distribution_bounds(lost, torch.tensor([x]).double())
    truth = (x > SPIKED).double().mean()  # of random signs
    assert (low <= truth + 1e-12).all()
    assert (high >= truth - 1e-12).all()
    assert (high - low).max() < 0.03


def test_the_atom_that_is_nearest_to_zero_has_the_weight_of_its_copies(lost):
    assert degeneracy(lost).weight.mean == pytest.approx(0.1, rel=1e-9)


def test_eigenvalues_of_copies_are_found_once_with_a_bound(lost):
    best = best_run(lost, k=5, which="LA", tol=1e-6)
    exact = SPIKED.sort(descending=True).values[:5]
    assert best.converged[0, :2].all()
    off = (best.values[0, :, None] - SPIKED).abs().amin(1)
    assert (off <= best.residuals[0]).all()
    torch.testing.assert_close(best.values[0, :3], exact[:3], rtol=1e-5, atol=0)


def test_three_vectors_are_as_good_as_all_before_one_is_found():
    A, start = BatchedDense(random_symmetric(40, seed=1)[None]), starts(1, 40, 2)
    runs = LanczosRuns(A, start, reorthogonalize="none")
    for num_steps in (1, 2, 7, 8):
        whole = lanczos(A, start, num_steps=num_steps)
        parts = runs.extended(num_steps)
        for name in ("values", "weights", "residuals"):
            torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


def test_as_many_steps_as_rows_are_not_exact_without_a_basis_and_not_made():
    A, start = BatchedDense(random_symmetric(12, seed=1)[None]), starts(1, 12, 1)
    runs = LanczosRuns(A, start, reorthogonalize="none")
    assert runs.extended(99).steps.tolist() == [[11]]
    with pytest.raises(InputError, match="vectors: cannot be combined with"):
        runs.extended(99, vectors=True)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_vectors_without_a_basis_may_become_long_or_short(size):
    A = BatchedDense(size * random_symmetric(400, seed=1)[None])
    start = starts(1, 400, 3)
    whole = lanczos(A, start, num_steps=12)
    plain = lanczos(A, start, num_steps=12, reorthogonalize="none")
    for name in ("values", "weights"):
        torch.testing.assert_close(getattr(plain, name), getattr(whole, name))


def test_runs_without_a_basis_end_and_are_left_like_others():
    # Of three eigenvalues, two, and many; starts of the first end one by one.
    few = torch.tensor([1.0, 2.0, 4.0]).repeat(30)
    two = torch.tensor([3.0, -3.0]).repeat(45)
    A = torch.stack([few, two, torch.linspace(-1, 1, 90)]).double().diag_embed()
    start = starts(3, 90, 2)
    start[0, 30:, 1] = 0
    start[0, ::3, 1] = 1
    runs = LanczosRuns(BatchedDense(A), start, reorthogonalize="none")
    runs.extended(3)
    ended = runs.extended(6)
    assert ended.steps.tolist() == [[3, 3], [2, 2], [6, 6]]
    runs.select(torch.tensor([2, 0]))
    rest = runs.extended(9)
    whole = lanczos(BatchedDense(A[[2, 0]]), start[[2, 0]], num_steps=9)
    assert torch.equal(rest.steps, whole.steps)
    for name in ("values", "weights"):
        torch.testing.assert_close(
            getattr(rest, name), getattr(whole, name), equal_nan=True
        )
