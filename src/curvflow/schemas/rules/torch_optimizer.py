"""Optimisers of PyTorch and of others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator

from curvflow.schemas.explanations import Section
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
    not_inside: ClassVar[bool] = True

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
                f"{name}, which {NOT_BY_GRADIENT[name]}. Choose another."
            )
        return f"{module}:{name}"

    @field_validator("kwargs")
    @classmethod
    def _leaves_the_rate_out(cls, kwargs: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in ("lr", "params"):
            if name in kwargs:
                raise ValueError(
                    f"{name} cannot be combined with the rule, which gives it "
                    "itself. Remove it."
                )
        return kwargs


RULE = TorchOptimizer

EXPLANATION = Section(
    group="Optimisers of PyTorch and of others",
    summary="takes any optimiser of PyTorch or made for it",
    text="""\
w ← what an optimiser makes of w, g and its state. `optimizer` names a class to
import, `torch.optim:NAdam` or, as well, `torch.optim.NAdam`; `lr` and `kwargs` are
its keyword arguments. It sees the network's own tensors, so that rules which look at
matrices or at norms of tensors work as they are meant to. At each step the optimiser
is made anew and given its state back, which is stored with the result: training is
resumed and lengthened as under the other rules.

At the beginning the class is tried on random gradients. Where one optimiser of
stacked tensors does what one for each model does, models of equal `lr`, `kwargs` and
schedule are stepped by one; so it is for all element-wise rules of PyTorch.
Otherwise, as for `Adafactor`, each model has its own, which takes longer, and the run
says so.

Refused in one line are optimisers that evaluate the loss within a step or take sparse
gradients (`LBFGS` and `SparseAdam` while planning, others when training begins), that
draw random numbers, or that keep elsewhere than in `state` and the numbers of
`param_groups` what their steps depend on. The schedule of the rule sets `lr` before
each step, so a class that changes its own is refused, too.

Code of a class outside PyTorch is followed like that of a model's factory: once it
has changed, `run` asks what is to become of the results.
""",
    source="""\
`torch.optim`, PyTorch 2 (2023).
""",
    example="""\
axes:
  rule:
    nadam: {rule: torch_optimizer, optimizer: "torch.optim:NAdam", lr: 0.002}
    rprop: {rule: torch_optimizer, optimizer: torch.optim.Rprop, lr: 0.01,
            kwargs: {etas: [0.5, 1.2]}}
""",
)
