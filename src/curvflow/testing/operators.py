"""Dense twins of curvature operators, by plain autograd, and what operators must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.errors import InputError

Loss = Callable[[Tensor, Tensor], Tensor]

# Difference allowed between a mean of losses and the loss of all, of their size.
MEANS = 1e-4


class Multiplies(Protocol):
    """A linear map (D, D) that multiplies vectors and columns."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    def __matmul__(self, columns: Tensor) -> Tensor: ...


def dense(operator: Multiplies) -> Tensor:
    """Return the matrix of an operator, its products with the columns of the identity.

    Args:
        operator: a linear map (D, D).

    Returns:
        The matrix, (D, D).

    Examples:
        >>> import curvflow, torch
        >>> from curvflow.testing import dense
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> torch.equal(dense(curvflow.from_matrix(A)), A)
        True
    """
    size = operator.shape[1]
    return operator @ torch.eye(size, dtype=operator.dtype, device=operator.device)


def assert_operator_is(
    operator: Multiplies, matrix: Tensor, *, rtol: float = 1e-10
) -> None:
    """Check an operator against its dense twin, and its products against each other.

    Columns of the identity, a block of random columns and one vector are multiplied;
    the matrix is symmetric; two calls are equal to the bit.

    Args:
        operator: a linear map (D, D).
        matrix: what it must be.
        rtol: difference allowed, relative to the largest entry.

    Examples:
        >>> import curvflow, torch
        >>> from curvflow.testing import assert_operator_is
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]]).double()
        >>> assert_operator_is(curvflow.from_matrix(A), A)
    """
    matrix = matrix.to(operator.device)
    scale = float(matrix.abs().max())
    computed = dense(operator)
    torch.testing.assert_close(computed, matrix, rtol=0, atol=rtol * scale)
    torch.testing.assert_close(computed, computed.mT, rtol=0, atol=rtol * scale)
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(len(matrix), 3, generator=generator, dtype=torch.float64)
    columns = columns.to(operator.device, operator.dtype)
    products = operator @ columns
    room = rtol * scale * len(matrix)
    torch.testing.assert_close(products, matrix @ columns, rtol=0, atol=room)
    torch.testing.assert_close(
        operator @ columns[:, 0], products[:, 0], rtol=0, atol=room
    )
    assert torch.equal(operator @ columns, products)


def dense_hessian(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Return the Hessian of a module's loss, by autograd twice.

    Args:
        module: all parameters are derived by.
        loss: of outputs and targets, the mean over the batch.
        x: inputs.
        y: targets.

    Returns:
        The matrix, (D, D).

    Examples:
        >>> import torch
        >>> from curvflow.testing import dense_hessian
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> x = torch.tensor([[3.0]])
        >>> dense_hessian(net, torch.nn.functional.mse_loss, x, x)
        tensor([[18.]])
    """
    leaves = list(module.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        mean = loss(module(x), y)
        slopes = torch.autograd.grad(
            mean, leaves, create_graph=True, materialize_grads=True
        )
        return _jacobian(_flat(slopes), leaves)


def dense_ggn(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Return the Gauss-Newton matrix, the mean over samples of J' B J.

    Args:
        module: all parameters are derived by; its outputs are one row per sample.
        loss: of outputs and targets, the mean over the batch.
        x: inputs.
        y: targets.

    Returns:
        The matrix, (D, D).

    Raises:
        InputError: the loss is no mean over samples.

    Examples:
        >>> import torch
        >>> from curvflow.testing import dense_ggn
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> x = torch.tensor([[3.0]])
        >>> dense_ggn(net, torch.nn.functional.mse_loss, x, x)
        tensor([[18.]])
    """
    with sdpa_kernel(SDPBackend.MATH):
        outputs = module(x)
        J_NCD = _jacobian(outputs, list(module.parameters()))
    _check_mean(loss, outputs.detach(), y)
    J_NCD = J_NCD.view(*outputs.shape, -1)
    total = torch.zeros_like(J_NCD[0, 0]).outer(J_NCD[0, 0])
    for output, target, J_CD in zip(outputs.detach(), y, J_NCD, strict=True):
        f = output.clone().requires_grad_()
        (slope_C,) = torch.autograd.grad(
            loss(f[None], target[None]), f, create_graph=True
        )
        total += J_CD.T @ _jacobian(slope_C, [f]) @ J_CD
    return total / len(x)


def sample_gradients(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the loss of each sample.

    Args:
        module: all parameters are derived by.
        loss: of outputs and targets, the mean over the batch.
        x: inputs.
        y: targets.

    Returns:
        Gradients as rows, (N, D): their second moment is the empirical Fisher matrix.

    Raises:
        InputError: the loss is no mean over samples.

    Examples:
        >>> import torch
        >>> from curvflow.testing import sample_gradients
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(net.weight)
        >>> x = torch.tensor([[1.0], [2.0]])
        >>> sample_gradients(net, torch.nn.functional.mse_loss, x, x)
        tensor([[-2.],
                [-8.]])
    """
    with sdpa_kernel(SDPBackend.MATH):
        outputs = module(x)
        _check_mean(loss, outputs.detach(), y)
        pairs = zip(outputs, y, strict=True)
        losses = [loss(output[None], target[None]) for output, target in pairs]
        return _jacobian(torch.stack(losses), list(module.parameters()))


def _check_mean(loss: Loss, outputs: Tensor, y: Tensor) -> None:
    """Refuse a loss of which single samples do not tell what they are in the mean."""
    pairs = zip(outputs, y, strict=True)
    each = torch.stack([loss(output[None], target[None]) for output, target in pairs])
    whole, mean = float(loss(outputs, y)), float(each.mean())
    if not abs(whole - mean) <= MEANS * float(each.abs().mean()):
        raise InputError(
            f"loss: expected the mean of the samples' losses, {mean:.6g}, got "
            f"{whole:.6g}, as where classes have weights. Take dense_hessian, or a "
            "loss of each sample."
        )


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _jacobian(values: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """Return the gradients of some numbers, one row each, (R, D)."""
    rows = [
        _flat(
            torch.autograd.grad(
                value,
                leaves,
                retain_graph=True,
                materialize_grads=True,
                allow_unused=True,
            )
        )
        for value in values.flatten()
    ]
    return torch.stack(rows)
