"""A rule written as the name of a preset."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from curvflow.schemas.presets import all_presets


class Preset(BaseModel):
    """Published settings by name; further fields replace its own."""

    model_config = ConfigDict(extra="allow")

    preset: str = Field(
        pattern=f"^({'|'.join(all_presets())})$",
        description="its name, such as jarvis-2021/xor-tanh/metric-small",
    )
    variant: Literal["printed", "fitted"] | None = Field(
        None,
        description="the numbers as printed, or those that lead to the results "
        "reported; null takes fitted where there are such, else printed",
    )
