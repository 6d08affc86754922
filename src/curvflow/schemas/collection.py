"""What a scheduled collection may be asked for, so that a form can check it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

KeepRuns = Annotated[int, Field(ge=0, description="finished runs to keep per study")]
GraceMinutes = Annotated[
    float, Field(ge=1, description="leave what is unfinished alone for so long")
]
