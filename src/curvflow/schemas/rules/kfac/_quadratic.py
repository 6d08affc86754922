"""Base of rules whose steps are as long as is best by the quadratic model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from curvflow.schemas.idle_settings import Idle, idle_setting
from curvflow.schemas.params import Neutral
from curvflow.schemas.rules._base import Rule


class QuadraticRule(Rule):
    """A direction, a length by the quadratic model, dampings, and maybe factors."""

    not_inside: ClassVar[bool] = True
    checks_problem: ClassVar[bool] = True

    lr: float = Field(
        1.0,
        gt=0,
        description="factor of steps of `step: lr`, and of others without a minimum",
    )
    fisher_type: Literal["mc", "type-2", "recursive", "empirical"] = Field(
        "mc",
        description="labels drawn from the model, all of them by their probability, "
        "means from layer to layer (KFRA), or labels of the data",
    )
    mc_samples: int = Field(1, ge=1, description="labels drawn for each input if mc")
    psd: Annotated[Literal["refuse", "clip", "abs", "fisher"], Neutral("refuse")] = (
        Field(
            "refuse",
            description="where the Hessian of the loss by the outputs is indefinite, "
            "as of gaussian and mixture_bernoulli: refuse it, but for gauss_newton "
            "without factors, which takes it as it is; clip negative eigenvalues to 0; "
            "take their magnitudes, abs; or take the fisher matrix of the loss",
        )
    )
    kfac_approx: Literal["expand", "reduce"] = Field(
        "expand", description="positions of a sample apart, or summed"
    )
    separate_weight_and_bias: bool = Field(
        False, description="give a bias a block of its own"
    )
    inverse: Literal["factored", "exact"] = Field(
        "factored", description="damp each factor, or their product"
    )
    pi: Literal["trace", "frobenius", "spectral"] | Annotated[float, Field(gt=0)] = (
        Field(
            "trace",
            description="how factored damping is split: by a norm of both factors, or "
            "this number",
        )
    )
    l2: float = Field(0.0, ge=0, description="penalty l2 |w|^2 / 2 beside the loss")
    damping: float = Field(
        1.0, ge=0, description="added to the curvature in the quadratic model"
    )
    preconditioner_damping: float | None = Field(
        None, ge=0, description="added to the blocks; null takes damping as it is"
    )
    damping_adaptation_interval: int | None = Field(
        5, ge=0, description="steps between changes of damping; null or 0 for none"
    )
    damping_adaptation_decay: float = Field(
        0.95, gt=0, lt=1, description="factor by which damping falls, or rises by 1/it"
    )
    damping_lower_threshold: float = Field(
        0.25, description="reduction ratio below which damping rises"
    )
    damping_upper_threshold: float = Field(
        0.75, description="reduction ratio above which damping falls"
    )
    min_damping: float = Field(
        1e-8, ge=0, description="least damping that adaptation leads to"
    )
    max_damping: float = Field(
        1e8, gt=0, description="largest damping that adaptation leads to"
    )
    step: Literal["quadratic", "lr"] = Field(
        "quadratic", description="length by the quadratic model, or by lr"
    )
    momentum: Literal["quadratic"] | Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="factor of the step before, or the best by the model"
    )
    factor_decay: float = Field(
        0.0, ge=0, lt=1, description="weight of former batches in the factors"
    )
    factor_update_steps: int = Field(
        1, ge=1, description="steps between batches that factors are taken of"
    )
    inv_update_steps: int = Field(1, ge=1, description="steps between inversions")
    kl_clip: float | None = Field(
        None, gt=0, description="largest d'Gd / 2 of a step d; null for none"
    )
    reject: bool = Field(
        False, description="take back steps that raise the loss of their batch"
    )

    @property
    def chooses_momentum(self) -> bool:
        """True: the model's momentum changes as it trains, even if one is given."""
        return True

    @property
    def is_corrected(self) -> bool:
        """True if factors have corrected eigenvalues."""
        return False

    @property
    def tries_dampings(self) -> bool:
        """True if several dampings of the blocks are tried by the model."""
        return False

    @property
    def has_model(self) -> bool:
        """True if steps are taken by the quadratic model, or measured by it."""
        is_best = "quadratic" in (self.step, self.momentum)
        is_measured = self.damping_adaptation_interval or self.tries_dampings
        return is_best or bool(is_measured) or self.kl_clip is not None

    def idle_settings(self) -> Iterator[Idle]:
        """Yield those of other factors, and of dampings that change."""
        if self.fisher_type != "mc":
            cause = f"fisher_type {self.fisher_type}, which draws nothing"
            yield idle_setting(self, "mc_samples", cause, "fisher_type mc")
        if self.inverse == "exact":
            cause = "inverse exact, which splits no damping"
            yield idle_setting(self, "pi", cause, "inverse factored")
        yield from self._idle_of_changes()

    def _idle_of_changes(self) -> Iterator[Idle]:
        """Yield what says how dampings change, where they do not."""
        if self.damping_adaptation_interval:
            return
        names = ["damping_lower_threshold", "damping_upper_threshold"]
        if not self.reject:
            names.append("damping_adaptation_decay")
        if not self.reject and not self.tries_dampings:
            names += ["min_damping", "max_damping"]
        for name in names:
            cause = "damping_adaptation_interval null, which changes no damping"
            yield idle_setting(self, name, cause, "damping_adaptation_interval 5")

    @property
    def records(self) -> tuple[str, ...]:
        """The dampings, and how far the model is to be trusted."""
        return (
            "damping",
            "preconditioner_damping",
            "reduction_ratio",
            "predicted_change",
            "rejected_share",
        )

    def hyper(self) -> dict[str, float]:
        """Return the hyper-parameters by name; flags are choices here."""
        return {n: v for n, v in self._fields() if isinstance(v, float)}

    def choices(self) -> dict[str, Any]:
        """Return what models trained together share, by name."""
        return {n: v for n, v in self._fields() if not isinstance(v, float)}

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what factors and inverses hold; passes are counted by themselves."""
        sizes = [(shape[0], prod(shape[1:]) + 1) for shape in shapes if len(shape) > 1]
        factors = sum(rows**2 + columns**2 for rows, columns in sizes)
        # Averages, those of the batch, inverses, and what they are made of.
        return 6 * factors + 6 * sum(map(prod, shapes))

    @model_validator(mode="after")
    def _has_bounds_in_order(self) -> Self:
        if self.schedule is not None and self.step == "quadratic":
            raise ValueError(
                "schedule cannot be combined with step quadratic, which chooses the "
                "rate. Set step: lr."
            )
        if self.damping_lower_threshold > self.damping_upper_threshold:
            raise ValueError(
                "expected damping_lower_threshold up to damping_upper_threshold, got "
                f"{self.damping_lower_threshold:g} above "
                f"{self.damping_upper_threshold:g}. Lower it."
            )
        if self.min_damping > self.max_damping:
            raise ValueError(
                f"expected min_damping up to max_damping, got {self.min_damping:g} "
                f"above {self.max_damping:g}. Lower it."
            )
        return self
