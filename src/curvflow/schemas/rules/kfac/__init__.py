"""Kronecker-factored approximate curvature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal, Self

from pydantic import Field, model_validator

from curvflow.schemas.idle_settings import Idle, idle_setting
from curvflow.schemas.rules.kfac._explanation import EXPLANATION
from curvflow.schemas.rules.kfac._quadratic import QuadraticRule

__all__ = ["EXPLANATION", "RULE", "Kfac"]


class Kfac(QuadraticRule):
    """Steps by Kronecker factors of the batch's Fisher matrix, as long as is best."""

    rule: Literal["kfac"] = "kfac"
    structure: Literal["kron", "ekfac"] = Field(
        "kron", description="products of two factors, or with corrected eigenvalues"
    )
    preconditioner_adaptation_interval: int | None = Field(
        None,
        ge=0,
        description="steps between trials of preconditioner_damping; null or 0 for "
        "none",
    )
    preconditioner_adaptation_decay: float = Field(
        0.95, gt=0, lt=1, description="factor of the candidates on both sides"
    )

    @property
    def is_corrected(self) -> bool:
        """True of `structure: ekfac`."""
        return self.structure == "ekfac"

    @property
    def tries_dampings(self) -> bool:
        """True with an interval between trials."""
        return bool(self.preconditioner_adaptation_interval)

    @property
    def has_preconditioner(self) -> bool:
        """True: P is that of the blocks with their damping."""
        return True

    @property
    def has_blocks(self) -> bool:
        """True: it is stored by its eigenvectors and eigenvalues."""
        return True

    def preconditioner_size(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Return what eigenvectors, eigenvalues and places of the blocks take."""
        sizes = [(shape[0], prod(shape[1:]) + 1) for shape in shapes]
        vectors = sum(rows**2 + columns**2 for rows, columns in sizes)
        return vectors + 3 * sum(rows * columns for rows, columns in sizes)

    def idle_settings(self) -> Iterator[Idle]:
        """Yield those of all such rules, and dampings that no step sees."""
        yield from super().idle_settings()
        follows = self.preconditioner_damping is None
        if not follows and not self.has_model:
            cause = "preconditioner_damping and step lr, which take no quadratic model"
            yield idle_setting(self, "damping", cause, "step quadratic")
        name = "preconditioner_adaptation_decay"
        if follows:
            cause = "preconditioner_damping null, which takes damping as it is"
            yield idle_setting(self, name, cause, "preconditioner_damping 1.0")
        elif not self.tries_dampings and not self.reject:
            cause = "preconditioner_adaptation_interval null, which tries none"
            yield idle_setting(
                self, name, cause, "preconditioner_adaptation_interval 20"
            )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.tries_dampings and self.preconditioner_damping is None:
            raise ValueError(
                "preconditioner_adaptation_interval cannot be combined with "
                "preconditioner_damping null, which takes damping as it is. Set "
                "preconditioner_damping."
            )
        if self.structure == "ekfac" and self.fisher_type == "recursive":
            raise ValueError(
                "structure ekfac cannot be combined with fisher_type recursive, which "
                "has no gradients of samples. Set fisher_type: type-2."
            )
        if self.structure == "ekfac" and self.inverse == "factored":
            raise ValueError(
                "structure ekfac cannot be combined with inverse factored, which does "
                "not see corrected eigenvalues. Set inverse: exact."
            )
        return self


RULE = Kfac
