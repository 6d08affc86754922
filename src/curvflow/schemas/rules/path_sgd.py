"""Path-SGD."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class PathSgd(Rule):
    """Steepest descent by the norm of the path vector, invariant to rescaling units."""

    rule: Literal["path_sgd"] = "path_sgd"
    lr: float = Field(gt=0, description="learning rate")
    p: float = Field(2.0, ge=1, description="power of the path norm")
    eps: float = Field(
        0.0, ge=0, description="least gamma; above 0 it ends the invariance"
    )

    def hyper(self) -> dict[str, float]:
        """Return the hyper-parameters by name, all but p."""
        return {n: v for n, v in super().hyper().items() if n != "p"}

    def choices(self) -> dict[str, Any]:
        """Return what is shared; of p too: one passage counts paths by one power."""
        return super().choices() | {"p": self.p}


RULE = PathSgd
