"""Parameters of estimates by random vectors: how many, until when, and of what data."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from curvflow.schemas.kind import Input
from curvflow.schemas.kinds.shared.operators import OPERATOR_INPUTS, OperatorParams
from curvflow.schemas.params import Neutral

# Labels drawn for all data at once, and what a mean gradient is taken from.
NO_SAMPLE_MEANS = ("fisher_mc", "gradient_covariance")


class VectorsParams(OperatorParams):
    """Random vectors, for all data or for each batch, and the error that ends them."""

    probes_per: Annotated[Literal["data", "batch"], Neutral("data")] = Field(
        "data",
        description="data: each vector is multiplied with the mean over all data; "
        "batch: with that over a batch, and few batches may stand for all data",
    )
    batch_size: Annotated[int, Neutral(64)] = Field(
        64, ge=1, description="samples per batch, of probes_per batch"
    )
    num_probes: int = Field(
        64, ge=4, description="random vectors drawn, S; with rel_sem at the first look"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of their entries"
    )
    rel_sem: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="go on doubling the vectors until the standard error is at most "
        "this part of the estimate; null draws num_probes",
    )
    max_probes: int | None = Field(
        None,
        ge=4,
        description="most vectors, with rel_sem; null takes 64 num_probes. Of batches, "
        "a pass over all data that was begun is ended",
    )

    @model_validator(mode="after")
    def _of_batches(self) -> VectorsParams:
        for name in ("batch_size", "num_batches"):
            field = type(self).model_fields.get(name)
            is_set = field is not None and getattr(self, name) != field.default
            if self.probes_per == "data" and is_set:
                raise ValueError(
                    f"{name} cannot be combined with probes_per data. Remove {name}, "
                    "or set probes_per to batch."
                )
        return self

    @model_validator(mode="after")
    def _per_batch(self) -> VectorsParams:
        if self.probes_per == "batch" and self.operator in NO_SAMPLE_MEANS:
            raise ValueError(
                f"probes_per batch cannot be combined with operator {self.operator}, "
                "which is no mean over samples. Take probes_per data."
            )
        if self.probes_per == "batch" and self.mode == "train":
            raise ValueError(
                "probes_per batch cannot be combined with mode train, in which samples "
                "meet in batches of train_batch_size. Take probes_per data."
            )
        return self

    @model_validator(mode="after")
    def _stops(self) -> VectorsParams:
        if self.max_probes is not None and self.rel_sem is None:
            raise ValueError(
                "max_probes cannot be combined with rel_sem null. Remove max_probes, "
                "or set rel_sem, the error to reach."
            )
        if self.max_probes is not None and self.max_probes < self.num_probes:
            raise ValueError(
                f"expected max_probes of num_probes or more, got {self.max_probes}. "
                "Raise max_probes."
            )
        return self

    @property
    def most(self) -> int:
        """Vectors at the last look."""
        if self.rel_sem is None:
            return self.num_probes
        return self.max_probes or 64 * self.num_probes


def vector_inputs(*settled: str) -> dict[str, Input]:
    """Return the inputs of an operator; a matrix or graph is no mean over samples.

    Args:
        settled: further parameters of batches, in addition to those that all have.
    """
    names = ("probes_per", "batch_size", *settled)
    without_samples = {
        name: replace(given, settles=(*given.settles, *names))
        for name, given in OPERATOR_INPUTS.items()
        if name in ("matrix", "graph", "factors")
    }
    return OPERATOR_INPUTS | without_samples
