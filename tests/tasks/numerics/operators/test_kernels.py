"""Kernel matrices as operators."""

import pytest
import torch

from curvflow.tasks.numerics.operators import matrices
from curvflow.tasks.numerics.operators.matrices import FUNCTIONS, KernelMatrix


def points(count=40, dim=3):
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, dim, generator=generator, dtype=torch.float64)


def written_out(x, kernel, length_scale, noise):
    r = (x[:, None] - x[None]).norm(dim=2) / length_scale
    root3, root5 = 3**0.5 * r, 5**0.5 * r
    values = {
        "squared_exponential": torch.exp(-(r**2) / 2),
        "exponential": torch.exp(-r),
        "matern32": (1 + root3) * torch.exp(-root3),
        "matern52": (1 + root5 + 5 * r**2 / 3) * torch.exp(-root5),
    }
    return values[kernel] + noise * torch.eye(len(x), dtype=x.dtype)


@pytest.mark.parametrize("kernel", FUNCTIONS)
def test_a_kernel_matrix_equals_its_dense_twin(kernel, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_BYTES", 8 * 40 * 7)  # blocks of 7 rows
    x = points()
    operator = KernelMatrix(x, kernel, 0.3, 1e-3)
    twin = written_out(x, kernel, 0.3, 1e-3)
    columns = torch.randn(40, 5, dtype=torch.float64)
    torch.testing.assert_close(operator @ columns, twin @ columns, rtol=1e-10, atol=0)
    torch.testing.assert_close(operator @ columns[:, 0], twin @ columns[:, 0])
    torch.testing.assert_close(operator.dense(), twin, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(operator.diagonal(), twin.diagonal(), rtol=1e-15, atol=0)
    numbers = torch.tensor([3, 17])
    torch.testing.assert_close(
        operator.columns(numbers), twin[:, numbers], rtol=1e-10, atol=1e-12
    )


def test_a_kernel_matrix_is_symmetric_and_serves_scipy():
    operator = KernelMatrix(points(), "matern32", 0.5, 0.0)
    u, v = torch.randn(2, 40, dtype=torch.float64)
    assert u @ (operator @ v) == pytest.approx(float(v @ (operator @ u)), rel=1e-12)
    result = operator.to_scipy() @ v.numpy()
    assert result == pytest.approx((operator.adjoint() @ v).numpy())
    assert torch.equal(operator.dense(), operator.dense().T)
