"""Products whose results are checked."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import BatchedOperator

# Entries of a vector that are added up at once.
PART = 1 << 17


@runtime_checkable
class Writing(Protocol):
    """An operator whose products can be written into memory at hand."""

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the products with columns (M, D, S) into memory like them."""


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
    images_MDS, _ = measured_product(operator, columns_MDS)
    return images_MDS.double()


def measured_product(
    operator: BatchedOperator, columns_MDS: Tensor, *, room_MDS: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Multiply in the precision of the operator, and return the lengths as well.

    Args:
        operator: maps of M models.
        columns_MDS: what to multiply, (M, D, S).
        room_MDS: memory that the products may be written to: where D is large, new
            memory costs as much as arithmetic.

    Returns:
        The products, (M, D, S), in the operator's precision, and their lengths, (M, S),
        float64.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    columns_MDS = columns_MDS.to(operator.dtype)
    if room_MDS is not None and isinstance(operator, Writing):
        operator.multiply_into(columns_MDS, room_MDS)
        images_MDS = room_MDS
    else:
        images_MDS = operator @ columns_MDS
    # A length is finite where every entry is, and is wanted anyway.
    lengths_MS = lengths(images_MDS, dim=1)
    if not torch.isfinite(lengths_MS).all():
        raise InputError(
            "operator: expected finite products, got NaN or infinity. Take curvature "
            "where the loss is finite, or products in double precision."
        )
    return images_MDS, lengths_MS


def lengths(vectors: Tensor, *, dim: int) -> Tensor:
    """Return the Euclidean lengths of vectors of any precision, added up in float64."""
    parts: list[Tensor] = [
        torch.linalg.vector_norm(part, dim=dim, dtype=torch.float64)
        for part in _parts(vectors, dim)
    ]
    return parts[0] if len(parts) == 1 else lengths(torch.stack(parts), dim=0)


def inner(first: Tensor, second: Tensor, *, dim: int) -> Tensor:
    """Return inner products of vectors of any precision, added up in float64."""
    parts = [
        (a * b).sum(dim, dtype=torch.float64)
        for a, b in zip(_parts(first, dim), _parts(second, dim), strict=True)
    ]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def _parts(vectors: Tensor, dim: int) -> tuple[Tensor, ...]:
    # What is added up in float64 is copied before, and large copies take new memory.
    return torch.split(vectors, PART, dim)
