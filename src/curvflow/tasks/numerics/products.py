"""Products whose results are checked and held in double precision."""

from __future__ import annotations

from torch import Tensor, isfinite

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import BatchedOperator


def product(operator: BatchedOperator, columns_MDS: Tensor) -> Tensor:
    """Multiply in the precision of the operator, and return in double precision.

    Args:
        operator: maps of M models.
        columns_MDS: what to multiply, (M, D, S), float64.

    Returns:
        The products, (M, D, S), float64.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    images_MDS = (operator @ columns_MDS.to(operator.dtype)).double()
    if not isfinite(images_MDS).all():
        raise InputError(
            "operator: expected finite products, got NaN or infinity. Take curvature "
            "where the loss is finite, or products in double precision."
        )
    return images_MDS
