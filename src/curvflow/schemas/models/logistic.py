"""Logistic regression."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, weights_of


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
