"""Orthonormal bases that grow with the columns they span."""

from __future__ import annotations

import torch
from torch import Tensor

# Directions below this share of the longest column are rounding errors.
NEGLIGIBLE = 1e-10


def new_directions(columns_MDS: Tensor, basis_MDK: Tensor) -> Tensor:
    """Return orthonormal columns that span what a basis lacks of some columns.

    Args:
        columns_MDS: what is to be spanned, float64.
        basis_MDK: orthonormal columns, or zeros.

    Returns:
        Columns (M, D, min(S, D)) orthogonal to the basis; zero where the columns have
        nothing new.
    """
    longest_M = columns_MDS.norm(dim=1).amax(1)
    found = _left(_without(columns_MDS, basis_MDK), NEGLIGIBLE * longest_M)
    # What is short beside the columns is orthogonal only after a second pass.
    return _left(_without(found, basis_MDK), torch.full_like(longest_M, 0.5))


def _without(columns_MDS: Tensor, basis_MDK: Tensor) -> Tensor:
    for _ in range(2):
        columns_MDS = columns_MDS - basis_MDK @ (basis_MDK.mT @ columns_MDS)
    return columns_MDS


def _left(columns_MDS: Tensor, least_M: Tensor) -> Tensor:
    """Return left singular vectors; zero where the singular value is too small."""
    left_MDS, values_MS, _ = torch.linalg.svd(columns_MDS, full_matrices=False)
    kept_M1S = (values_MS > least_M[:, None]).unsqueeze(1)
    return torch.where(kept_M1S, left_MDS, 0.0)
