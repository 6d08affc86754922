"""What one check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes:
        check: its name, such as `prefect.fastapi`.
        state: `warn` is worth a look, `FAIL` keeps something from working.
        found: in words.
        remedy: what to do, if anything.
    """

    check: str
    state: State
    found: str
    remedy: str = ""
