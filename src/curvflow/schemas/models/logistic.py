"""Logistic regression."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from curvflow.schemas.models._base import Model


class Logistic(Model):
    """Multinomial logistic regression whose last class is the reference.

    The reference's output is 0, so that no two weights give one function.
    """

    fits_values: ClassVar[bool] = False

    kind: Literal["logistic"] = "logistic"
    bias: bool = Field(True, description="whether the other classes have a bias")


MODEL = Logistic
