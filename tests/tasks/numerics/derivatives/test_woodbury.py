"""Damped solves by rows, against dense ones."""

import pytest
import torch

from curvflow.tasks.numerics import damped_solve
from curvflow.tasks.numerics.derivatives.row_factors import FullRows


def drawn(rows, size, models=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(models, *shape, generator=generator, dtype=torch.float64)

    return normal(rows, size), normal(size)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def dense(rows, vectors, alpha, least):
    F = rows.mT @ rows
    size = F.shape[1]
    trace = F.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    kappa = alpha / size * torch.maximum(trace, least)
    eye = torch.eye(size, dtype=torch.float64)
    return torch.linalg.solve(F + kappa[:, :, None] * eye, vectors)


@pytest.mark.parametrize(("rows", "size"), [(5, 12), (12, 5), (1, 4)])
def test_rows_solve_as_the_dense_matrix_does(rows, size):
    G, v = drawn(rows, size)
    alpha, least = column(1e-4, 0.1, 10.0), column(1e-10, 1e3, 1e-10)
    result = damped_solve(FullRows(G), v, alpha, least)
    torch.testing.assert_close(result, dense(G, v, alpha, least), rtol=1e-9, atol=1e-12)


def test_little_damping_costs_no_digits():
    G, v = drawn(12, 5)
    alpha, least = column(1e-9, 1e-10, 1e-11), column(1e-10, 1e-10, 1e-10)
    result = damped_solve(FullRows(G), v, alpha, least)
    torch.testing.assert_close(result, dense(G, v, alpha, least), rtol=1e-9, atol=1e-12)


def test_without_rows_the_least_trace_damps():
    G, v = torch.zeros(3, 2, 4, dtype=torch.float64), torch.ones(3, 4)
    result = damped_solve(FullRows(G), v, column(1.0, 2.0, 4.0), column(1.0, 1.0, 1.0))
    torch.testing.assert_close(result[:, 0], torch.tensor([4.0, 2.0, 1.0]).double())


def test_models_that_have_no_solution_leave_the_others_alone():
    G, v = drawn(5, 12)
    alone = damped_solve(
        FullRows(G), v, column(0.1, 0.1, 0.1), column(1e-10, 1e-10, 1e-10)
    )
    G[0] = torch.nan
    G[1, 1] = G[1, 0]
    result = damped_solve(
        FullRows(G), v, column(0.1, 1e-300, 0.1), column(1e-10, 1e-10, 1e-10)
    )
    assert torch.isnan(result[:2]).all()
    assert torch.equal(result[2], alone[2])
