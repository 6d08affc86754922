"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._adaptive import Adaptive


class AdamW(Adaptive):
    """Adam with decoupled weight decay, as torch.optim.AdamW has it."""

    rule: Literal["adamw"] = "adamw"


RULE = AdamW
