"""What figures of spectra compare with, from a matrix that is at hand."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

Comparison = Literal["eigenvalues", "diagonal"]
# YAML writes sequences as lists; a frozen model holds them as tuples.
Comparisons = Annotated[tuple[Comparison, ...], Field(strict=False)]


def asks_for_a_matrix(params: Any) -> bool:
    """Tell whether a figure compares with a matrix, and so takes one."""
    return bool(params.compare)
