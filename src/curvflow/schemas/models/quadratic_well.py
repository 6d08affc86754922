"""Quadratic well, whose Hessian has given eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from curvflow.schemas.models._base import Model, Some


class QuadraticWell(Model):
    """One weight per output; for input 1 and target 0 sse is half of h_i w_i^2."""

    kind: Literal["quadratic_well"] = "quadratic_well"
    eigenvalues: Annotated[tuple[PositiveFloat, ...], Field(strict=False), Some] = (
        Field(description="h, of the Hessian of the loss; one per output")
    )


MODEL = QuadraticWell


def tensor_sizes(spec: QuadraticWell, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return {"well.weight": len(spec.eigenvalues)}
