"""Running second moments of low rank, against dense ones and the published form."""

import pytest
import torch

from curvflow.tasks.numerics.derivatives.row_factors import (
    Law,
    OnlineFisher,
    first_fisher,
    isotropic,
    preconditioned,
    updated,
)

MODELS = 2


def filled(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


LAW = Law(share=filled(0.1, 0.3), delta=filled(5e-4, 1e-2), eps=filled(1e-10, 1e-10))
ALPHA = filled(4.0, 0.01)


def drawn(count, rows, size, seed=0):
    """Matrices whose columns differ in scale and are correlated."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, MODELS, rows, size)
    plain = torch.randn(shape, generator=generator, dtype=torch.float64)
    mix = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return plain @ (mix * 0.5 ** torch.arange(size))


def dense(fisher):
    rows, core, floor = fisher
    within = rows.mT @ rows
    eye = torch.eye(within.shape[1], dtype=torch.float64)
    return rows.mT @ core @ rows + floor * (eye - within)


def spectrum(matrix, function):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * function(values)) @ vectors.T


def assert_orthonormal(rows):
    eye = torch.eye(rows.shape[1], dtype=torch.float64).expand(MODELS, -1, -1)
    torch.testing.assert_close(rows @ rows.mT, eye, rtol=0, atol=1e-8)


def test_a_start_favours_no_direction():
    fisher = isotropic(filled(2.0, 3.0), 3, 7)
    assert_orthonormal(fisher.rows)
    eye = torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(dense(fisher), filled(2.0, 3.0) * eye)
    torch.testing.assert_close(fisher.trace, filled(14.0, 21.0))


def test_of_full_rank_they_are_the_moving_average_itself():
    size = 4
    fisher = isotropic(filled(1.0, 2.0), size, size)
    expected = dense(fisher)
    for X in drawn(12, 6, size):
        fisher = updated(fisher, X, LAW)
        average = LAW.share * X.mT @ X / 6 + (1 - LAW.share) * expected
        for model in range(MODELS):
            delta = LAW.delta[model].item()
            expected[model] = spectrum(
                average[model], lambda v, d=delta: v.clamp(min=(d * v.max()).item())
            )
        torch.testing.assert_close(dense(fisher), expected, rtol=1e-9, atol=1e-10)


def published(R, D, rho, X, model):
    """Make one step with diagonal D, as Povey et al. have it, for one model."""
    share, delta, eps = (leaf[model].item() for leaf in LAW)
    rank, size = R.shape
    eye = torch.eye(size, dtype=torch.float64)
    F = R.T @ torch.diag(D) @ R + rho * eye
    T = share * X.T @ X / len(X) + (1 - share) * F
    Y = R @ T
    squares, U = torch.linalg.eigh(Y @ Y.T)
    roots = squares.sqrt()
    left = (T.trace() - roots.sum()) / (size - rank)
    new = max(left.item(), eps, delta * roots.max().item())
    return torch.diag(1 / roots) @ U.T @ Y, (roots - new).clamp(min=0), new


def test_of_low_rank_they_are_those_of_the_published_recursion():
    rank, size = 3, 7
    fisher = isotropic(filled(0.1, 0.2), rank, size)
    states = [
        (fisher.rows[model], torch.zeros(rank).double(), fisher.floor[model].item())
        for model in range(MODELS)
    ]
    for X in drawn(12, 5, size):
        fisher = updated(fisher, X, LAW)
        assert_orthonormal(fisher.rows)
        for model in range(MODELS):
            R, D, rho = states[model] = published(*states[model], X[model], model)
            eye = torch.eye(size, dtype=torch.float64)
            expected = R.T @ torch.diag(D) @ R + rho * eye
            torch.testing.assert_close(
                dense(fisher)[model], expected, rtol=1e-7, atol=1e-8
            )


def test_rows_turn_to_the_directions_that_matter():
    size = 8
    X = torch.zeros(MODELS, 3, size, dtype=torch.float64)
    X[:, 0, 1], X[:, 1, 4], X[:, 2, 6] = 3.0, 2.0, 1.0
    fisher = first_fisher(X, 4, LAW)
    for _ in range(100):
        fisher = updated(fisher, X, LAW)
    result = dense(fisher).diagonal(dim1=1, dim2=2)
    expected = torch.zeros(MODELS, size, dtype=torch.float64)
    expected[:, 1], expected[:, 4], expected[:, 6] = 9 / 3, 4 / 3, 1 / 3
    torch.testing.assert_close(result, expected, rtol=0, atol=0.05)


def test_the_trace_is_kept_unless_an_eigenvalue_is_bounded():
    lax = Law(LAW.share, filled(0.0, 0.0), LAW.eps)
    fisher = isotropic(filled(1e-3, 1e-3), 4, 9)
    kept = []
    for X in drawn(20, 6, 9):
        newest = X.square().sum((1, 2), keepdim=True) / 6
        expected = lax.share * newest + (1 - lax.share) * fisher.trace
        fisher = updated(fisher, X, lax)
        least = torch.linalg.eigvalsh(fisher.core)[:, :1, None]
        kept.append(least > fisher.floor * (1 + 1e-9))
        equal = torch.isclose(fisher.trace, expected, rtol=1e-9)
        assert ((fisher.trace > expected) | equal).all()
        assert equal[kept[-1]].all()
    assert torch.stack(kept).float().mean() > 0.3


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_preconditioning_is_a_damped_solve_that_keeps_the_norm(rank):
    size = 6
    X = drawn(1, 5, size)[0]
    fisher = updated(isotropic(filled(0.1, 0.2), rank, size), X, LAW)
    result = preconditioned(fisher, X, ALPHA, LAW.eps)
    F = dense(fisher)
    eye = torch.eye(size, dtype=torch.float64)
    expected = X @ torch.linalg.inv(F + ALPHA / size * fisher.trace * eye)
    norm = torch.linalg.vector_norm
    scale = norm(X, dim=(1, 2)) / norm(expected, dim=(1, 2))
    expected = expected * scale[:, None, None]
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-10)


def test_nothing_stays_nothing_and_spoils_no_moments():
    X = torch.zeros(MODELS, 3, 4, dtype=torch.float64)
    fisher = first_fisher(X, 2, LAW)
    assert torch.equal(preconditioned(fisher, X, ALPHA, LAW.eps), X)
    assert all(torch.isfinite(leaf).all() for leaf in updated(fisher, X, LAW))


def test_a_model_that_has_diverged_leaves_the_others_alone():
    X = drawn(1, 5, 6)[0]
    fisher = first_fisher(X, 3, LAW)
    alone = updated(fisher, X, LAW)
    expected = preconditioned(alone, X, ALPHA, LAW.eps)
    for bad in (torch.nan, torch.inf):
        spoiled = X.clone()
        spoiled[0, 0, 0] = bad
        after = updated(fisher, spoiled, LAW)
        result = preconditioned(after, spoiled, ALPHA, LAW.eps)
        assert not torch.isfinite(result[0]).all()
        assert torch.equal(result[1], expected[1])
        again = updated(after, spoiled, LAW)
        assert torch.isfinite(again.rows[1]).all()


def test_single_precision_keeps_rows_orthonormal_under_leaps_of_scale():
    X = drawn(1, 5, 6)[0].float()
    law = Law(*(leaf.float() for leaf in LAW))
    fisher = first_fisher(X, 3, law)
    for scale in (1.0, 1e3, 1e-3, 1e3):
        fisher = updated(fisher, scale * X, law)
        assert isinstance(fisher, OnlineFisher)
        assert fisher.rows.dtype == torch.float32
        gram = fisher.rows.double() @ fisher.rows.double().mT
        torch.testing.assert_close(
            gram, torch.eye(3).double().expand_as(gram), rtol=0, atol=1e-3
        )
