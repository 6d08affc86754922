"""Optimisers of PyTorch and of others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator

from curvflow.schemas.rules._base import Rule

# Those of torch.optim that do not step on a dense gradient alone.
NOT_BY_GRADIENT = {
    "LBFGS": "evaluates the loss within a step",
    "SparseAdam": "takes sparse gradients",
}

# Per parameter at the peak, measured with Adam: 53, shared by two models at least.
TRIAL_NUMBERS = 27


class TorchOptimizer(Rule):
    """Any optimiser of PyTorch, or made for it, that steps on the gradient alone."""

    names_code_in: ClassVar[str] = "optimizer"

    rule: Literal["torch_optimizer"] = "torch_optimizer"
    optimizer: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[:.][A-Za-z_]\w*$",
        description="class to import, `torch.optim:NAdam` or `torch.optim.NAdam`",
    )
    lr: float = Field(gt=0, description="learning rate, its keyword argument `lr`")
    kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="further keyword arguments"
    )

    def choices(self) -> dict[str, Any]:
        """Return what models trained together share: all, for one optimiser has it."""
        return {**super().choices(), "lr": self.lr, "schedule": self.schedule}

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what each model's part in the trial of the optimiser holds."""
        return TRIAL_NUMBERS * sum(map(prod, shapes))

    @field_validator("optimizer")
    @classmethod
    def _steps_on_gradients(cls, path: str) -> str:
        module, _, name = path.replace(":", ".").rpartition(".")
        if module.split(".")[:2] == ["torch", "optim"] and name in NOT_BY_GRADIENT:
            raise ValueError(
                "expected an optimiser that steps on a dense gradient alone, got "
                f"{name}, which {NOT_BY_GRADIENT[name]}"
            )
        return f"{module}:{name}"

    @field_validator("kwargs")
    @classmethod
    def _leaves_the_rate_out(cls, kwargs: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in ("lr", "params"):
            if name in kwargs:
                raise ValueError(f"expected no {name} among kwargs, got {kwargs[name]}")
        return kwargs


RULE = TorchOptimizer
