"""A module of the user's own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from curvflow.schemas.kinds.shared.networks import Factory, Init


class FactoryModel(Factory):
    """A `torch.nn.Module` that a function of the user's own returns."""

    fits_values: ClassVar[bool] = True

    init: Init | None = Field(
        None, description="law of the initial weights; null keeps the module's own"
    )


MODEL = FactoryModel
SEES = "unknown"
