"""Conjugate gradients and MINRES against dense solutions, and where they must fail."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import minres as scipy_minres

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, Dense, conjugate_gradients, minres
from curvflow.tasks.numerics.krylov.linear_solvers import truncated_gradients

SIZE = 30


def matrices(low, models=2, high=10.0):
    """Return symmetric matrices with eigenvalues from low to high, (M, D, D)."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(models, SIZE, SIZE, generator=generator, dtype=torch.float64)
    Q = torch.linalg.qr(drawn).Q
    values = torch.linspace(low, high, SIZE, dtype=torch.float64)
    return Q @ torch.diag(values) @ Q.mT


def right(models=2, columns=3):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(models, SIZE, columns, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("solve", "low"), [(conjugate_gradients, 0.1), (minres, 0.1), (minres, -7.3)]
)
def test_solutions_are_those_of_the_dense_solver(solve, low):
    A, b = matrices(low), right()
    result = solve(BatchedDense(A), b, tol=1e-11, max_iterations=300)
    assert result.converged.all()
    assert result.definite.all()
    torch.testing.assert_close(result.x, torch.linalg.solve(A, b), rtol=1e-8, atol=1e-9)
    gaps = (b - A @ result.x).norm(dim=1) / b.norm(dim=1)
    torch.testing.assert_close(result.residuals, gaps)
    assert result.num_matvecs.tolist() == [(int(result.iterations.max()) + 1) * 3] * 2


def test_conjugate_gradients_stop_where_the_operator_is_indefinite():
    result = conjugate_gradients(
        BatchedDense(matrices(-3.0)), right(), tol=1e-9, max_iterations=99
    )
    assert not result.definite.any()
    assert not result.converged.any()


@pytest.mark.parametrize("solve", [conjugate_gradients, minres])
def test_an_ill_conditioned_system_is_reported_and_not_called_converged(solve):
    A = matrices(1e-13, models=1)[0]
    result = solve(Dense(A), right()[0, :, 0], tol=1e-12, max_iterations=20)
    assert not result.converged.item()
    assert result.iterations.item() == 20
    assert result.residuals.item() > 1e-12


def test_minres_does_not_converge_outside_the_range_of_a_singular_operator():
    A = torch.diag(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    b = torch.ones(3, dtype=torch.float64)
    result = minres(Dense(A), b, tol=1e-9, max_iterations=50)
    assert not result.converged.item()
    assert result.residuals.item() == pytest.approx(3**-0.5, rel=1e-6)


# Eigenvalues of matrices of which some are singular.
SPECTRA = {
    "positive": torch.linspace(1.0, 9.0, SIZE, dtype=torch.float64),
    "indefinite": torch.linspace(-7.0, 7.0, SIZE, dtype=torch.float64),
    "singular": torch.linspace(-7.0, 7.0, SIZE, dtype=torch.float64).clamp(min=-3) + 3,
    "signs and zeros": torch.arange(SIZE, dtype=torch.float64) % 7 - 3,
    "clustered": (torch.arange(SIZE, dtype=torch.float64) % 3 - 1) * 0.01,
    "rank one": torch.eye(SIZE, dtype=torch.float64)[0] * -5,
    "zero": torch.zeros(SIZE, dtype=torch.float64),
}


def systems(spectrum, dtype, seed, columns=3):
    """Return two matrices, and b within their ranges, outside, and zero."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(
        2, SIZE, SIZE + columns, generator=generator, dtype=torch.float64
    )
    Q = torch.linalg.qr(drawn[..., :SIZE]).Q
    A = Q @ torch.diag(SPECTRA[spectrum]) @ Q.mT
    b = drawn[..., SIZE:]
    mixed = torch.cat([A @ b, b, torch.zeros_like(b[..., :1])], dim=2)
    return ((A + A.mT) / 2).to(dtype), mixed


def least_residuals(A, b):
    """Return the least ||b - A x|| / ||b|| there is, 0 where b is 0, (M, S)."""
    x = torch.linalg.pinv(A.double(), rtol=1e-5, hermitian=True) @ b
    norms = b.norm(dim=1)
    return (b - A.double() @ x).norm(dim=1) / norms.where(norms > 0, 1.0)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [3 * SIZE, 1000])
def test_residuals_are_the_least_there_are_and_stay_so(spectrum, dtype, steps):
    tol = 1e-9 if dtype == torch.float64 else 1e-5
    for seed in range(3):
        A, b = systems(spectrum, dtype, seed)
        found = minres(BatchedDense(A), b, tol=tol, max_iterations=steps)
        least = least_residuals(A, b)
        assert torch.isfinite(found.x).all()
        assert (found.residuals <= 1).all()
        assert (found.residuals <= 1.001 * least + 1.1 * tol).all()
        assert (found.converged == (least < tol)).all()
        assert not (found.least_squares & found.converged).any()
        if spectrum != "singular" or dtype == torch.float64:
            assert (found.least_squares | found.converged).all()
        gaps = (b - A.double() @ found.x).norm(dim=1)
        assert (gaps <= (1 + 1e-4) * b.norm(dim=1)).all()


@pytest.mark.parametrize("spectrum", ["singular", "rank one", "zero"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tol", [1e-2, 1e-9])
def test_conjugate_gradients_return_nothing_worse_than_zero(spectrum, dtype, tol):
    for seed in range(3):
        A, b = systems(spectrum, dtype, seed)
        A = A if SPECTRA[spectrum].min() >= 0 else -A
        found = conjugate_gradients(BatchedDense(A), b, tol=tol, max_iterations=1000)
        assert torch.isfinite(found.x).all()
        assert (found.residuals <= 1).all()
        if tol > 1e-6 or dtype == torch.float64:
            # Those that have a solution converge beside those that have none.
            assert torch.equal(found.converged, least_residuals(A, b) < tol)


def test_singular_systems_take_few_more_products_than_those_of_scipy():
    for seed in range(3):
        A, b = systems("signs and zeros", torch.float64, seed)
        found = minres(BatchedDense(A), b, tol=1e-10, max_iterations=1000)
        for model, column in np.ndindex(2, b.shape[2] - 1):
            steps = []
            scipy_minres(
                A[model].numpy(),
                b[model, :, column].numpy(),
                rtol=1e-10,
                maxiter=1000,
                callback=steps.append,
            )
            assert found.iterations[model, column] <= len(steps) + 5


def test_residuals_of_rounding_alone_are_not_called_least_squares():
    A, b = systems("signs and zeros", torch.float32, 0)
    found = minres(BatchedDense(A), b, tol=1e-12, max_iterations=1000)
    assert not found.converged[:, :3].any()
    assert (found.residuals[:, :3] < 1e-5).all()
    assert found.least_squares.tolist() == [[False] * 3 + [True] * 3 + [False]] * 2


def test_small_eigenvalues_are_not_taken_for_zero():
    # Residuals along them are hardly moved by products, 1e-8 of ||A||, yet are solved.
    A, b = torch.diag(10 ** -torch.linspace(0, 8, 9).double()), torch.ones(9).double()
    found = minres(Dense(A), b, tol=1e-6, max_iterations=1000)
    assert found.converged.all()
    assert not found.gave_up.any()


@pytest.mark.parametrize("solve", [conjugate_gradients, minres])
def test_what_has_ended_does_not_spoil_what_goes_on(solve):
    A = torch.diag(torch.arange(float(SIZE)).double()).float()
    b = torch.stack([torch.ones(SIZE), torch.ones(SIZE)], dim=1).double()
    b[0, 1] = 0
    found = solve(Dense(A), b, tol=1e-6, max_iterations=2000)
    alone = solve(Dense(A), b[:, 1], tol=1e-6, max_iterations=2000)
    assert found.converged.tolist() == [[False, True]]
    torch.testing.assert_close(found.x[..., 1:], alone.x, rtol=1e-5, atol=1e-6)
    assert found.iterations[0, 1] == alone.iterations[0, 0]


@pytest.mark.parametrize("solve", [conjugate_gradients, minres])
def test_each_right_hand_side_stops_by_itself(solve):
    A, b = matrices(0.5, models=1)[0], right(1)[0]
    vector = torch.linalg.eigh(A)[1][:, :1]
    mixed = torch.cat([vector, b, torch.zeros_like(vector)], dim=1)
    result = solve(Dense(A), mixed, tol=1e-10, max_iterations=200)
    alone = solve(Dense(A), b, tol=1e-10, max_iterations=200)
    assert result.iterations[0, 0] == 1
    assert result.iterations[0, -1] == 0
    assert torch.equal(result.x[..., -1:], torch.zeros(1, SIZE, 1, dtype=torch.float64))
    torch.testing.assert_close(result.x[..., 1:4], alone.x, rtol=1e-10, atol=1e-12)
    assert torch.equal(result.iterations[0, 1:4], alone.iterations[0])


def test_products_in_single_precision_reach_what_their_rounding_allows():
    A = matrices(1.0)
    result = conjugate_gradients(
        BatchedDense(A.float()), right(), tol=1e-5, max_iterations=200
    )
    assert result.converged.all()
    solution = torch.linalg.solve(A, right())
    torch.testing.assert_close(result.x, solution, rtol=1e-3, atol=1e-4)


def test_vectors_of_another_length_and_numbers_that_are_none_are_refused():
    A = Dense(torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match=r"b: .* 3 numbers, .*\(1, 4, 1\)"):
        minres(A, torch.ones(4), tol=1e-6, max_iterations=9)
    with pytest.raises(InputError, match=r"b: .* NaN"):
        conjugate_gradients(A, torch.full((3,), torch.nan), tol=1e-6, max_iterations=9)
    with pytest.raises(InputError, match=r"b: .* real .*complex"):
        minres(A, torch.ones(3) * 1j, tol=1e-6, max_iterations=9)
    with pytest.raises(InputError, match=r"b: .* squares"):
        minres(
            A, torch.full((3,), 1e-200, dtype=torch.float64), tol=1e-6, max_iterations=9
        )
    with pytest.raises(InputError, match=r"b: .* none"):
        minres(A, torch.ones(3, 0), tol=1e-6, max_iterations=9)


def truncated(A, b, tols=(1e-11, 1e-11), steps=300, **given):
    tol_M1 = torch.tensor(tols, dtype=torch.float64).unsqueeze(1)
    return truncated_gradients(
        lambda v: A @ v, b, tol_M1=tol_M1, max_iterations=steps, **given
    )


def test_preconditioned_searches_reach_the_dense_solution_in_fewer_products():
    A, b = matrices(0.01), right()
    near = torch.linalg.inv(A + 0.02 * torch.eye(SIZE, dtype=torch.float64))
    plain, found = truncated(A, b), truncated(A, b, precondition=lambda v: near @ v)
    for one in (plain, found):
        torch.testing.assert_close(
            one.x, torch.linalg.solve(A, b), rtol=1e-8, atol=1e-8
        )
    assert (found.iterations < plain.iterations).all()


def test_truncated_searches_end_with_what_they_have_by_each_model():
    A, b = matrices(0.1), right()
    found = truncated(A, b, tols=(0.2, 1e-6), steps=12)
    gaps = (b - A @ found.x).norm(dim=1) / b.norm(dim=1)
    torch.testing.assert_close(found.residuals, gaps)
    assert (found.residuals[0] <= 0.2).all()
    assert (found.iterations[0] < found.iterations[1]).all()
    # Begun at the solution, there is nothing to do.
    start = torch.linalg.solve(A, b)
    again = truncated(A, b, start_MDS=start)
    assert (again.iterations == 0).all()
    assert torch.equal(again.x, start)


def test_a_search_that_cannot_begin_ends_with_its_first_direction():
    b = right()
    down = truncated(-matrices(0.1), b)
    assert torch.equal(down.x, b)
    assert (down.iterations == 1).all()
    start = torch.ones_like(b)
    kept = truncated(-matrices(0.1), b, start_MDS=start)
    assert torch.equal(kept.x, start)
    b[0, 0, 0], b[1, :, 1] = torch.nan, 0.0
    found = truncated(matrices(0.1), b)
    assert torch.isnan(found.x[0, :, 0]).all()
    assert (found.x[1, :, 1] == 0).all()
    assert (found.residuals[1] <= 1e-11).all()
