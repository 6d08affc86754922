"""Logistic regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, dense_sizes, weights_of


class Logistic(Model):
    """Multinomial logistic regression whose last class is the reference.

    The reference's output is 0, so that no two weights give one function.
    """

    fits_values: ClassVar[bool] = False

    kind: Literal["logistic"] = "logistic"
    bias: bool = Field(True, description="whether the other classes have a bias")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(["layer1"], bias=self.bias)


MODEL = Logistic


def tensor_sizes(spec: Logistic, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, outputs - 1], bias=spec.bias)
