"""Parameters and variables of probes of losses that are kept at draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from curvflow.schemas.kind import Input, ParamProblem, Variable
from curvflow.schemas.nodes import DrawnLosses
from curvflow.schemas.params import Ints, Params

By = Literal["kept", "sample", "token", "label", "all"]

# What must be kept for losses to be averaged in a way.
NEEDED = {
    "sample": ("samples", "tokens"),
    "token": ("tokens",),
}


class Observed(Params):
    """Observables: losses kept at the draws, each by itself or means over groups."""

    split: Literal["train", "test"] = Field("train", description="samples they are of")
    by: By = Field(
        "kept",
        description="kept, each loss by itself; sample, mean over its tokens; token, "
        "mean over the samples at each place; label, mean over those of each label; "
        "all, mean over all",
    )
    subsets: dict[str, Ints] | None = Field(
        None,
        min_length=1,
        description="means over samples of these numbers, from 0, by a name for each",
    )

    @model_validator(mode="after")
    def _groups_once(self) -> Observed:
        if self.subsets is None:
            return self
        if self.by != "kept":
            raise ValueError(
                f"expected subsets or by, got subsets with by {self.by}. Remove one."
            )
        for name, rows in self.subsets.items():
            if not rows or min(rows) < 0 or len(set(rows)) < len(rows):
                raise ValueError(
                    f"expected different numbers from 0 in subset {name}, got "
                    f"{list(rows)}. Number samples from 0."
                )
        return self


def drawn_input(*fields: str, is_full: bool = False) -> Input:
    """Return the input of draws whose losses are kept.

    Args:
        *fields: parameters that are `Observed`, or null.
        is_full: whether the whole loss at the draws is needed too.
    """

    def lacking(params: Any, name: str, draws: Any) -> Iterator[ParamProblem]:
        kept = getattr(draws, "keep_losses", "")
        if kept is None:
            message = f"expected a stage with keep_losses, got '{name}' without"
            yield ("draws",), message, f"Give '{name}' keep_losses: samples."
            return
        at = getattr(draws, "at_draws", "full")
        if is_full and at != "full":
            message = f"expected a stage with at_draws full, got '{name}' with {at}"
            yield ("draws",), message, f"Set at_draws of '{name}' to full."
        for field in fields:
            if (observed := getattr(params, field)) is not None and kept:
                for path, message, hint in _not_kept(observed, name, draws):
                    yield (field, *path), message, hint

    return Input(DrawnLosses, lacking=lacking)


def _not_kept(observed: Observed, name: str, draws: Any) -> Iterator[ParamProblem]:
    """Yield what an observable asks of losses that are not kept."""
    if draws.observed not in (observed.split, "both"):
        message = f"expected {draws.observed}, which '{name}' observes, got "
        yield ("split",), message + observed.split, f"Set observed of '{name}' to both."
    needed = NEEDED.get(observed.by, ())
    if observed.subsets is not None:
        needed = NEEDED["sample"]
    if needed and draws.keep_losses not in needed:
        field = "by" if observed.subsets is None else "subsets"
        message = (
            f"expected a stage that keeps {' or '.join(needed)}, got '{name}' of "
            f"{draws.keep_losses}"
        )
        yield (field,), message, f"Set keep_losses of '{name}' to {needed[0]}."
    most = draws.max_observed
    highest = max((max(rows) for rows in (observed.subsets or {}).values()), default=0)
    if most is not None and highest >= most:
        message = (
            f"expected numbers below the {most} samples of '{name}', got {highest}"
        )
        yield ("subsets",), message, f"Raise max_observed of '{name}'."


def average_variables(
    name: str, description: str, dims: tuple[str, ...], units: str
) -> tuple[Variable, ...]:
    """Return the variables of an average over draws, with its error and diagnostics.

    Args:
        name: of the average.
        description: of the average.
        dims: of all of them, whose coordinates are named too.
        units: of the average and its error.
    """
    return (
        *(Variable(dim, "what it is of", (dim,), "str", series=True) for dim in dims),
        Variable(
            name, description, dims, units=units, judged_by="converged", series=True
        ),
        Variable(
            f"{name}_sem",
            "standard error, of autocorrelated draws and chains that differ",
            dims,
            units=units,
            judged_by="converged",
            series=True,
        ),
        Variable("r_hat", "R-hat of what is averaged", dims, series=True),
        Variable("ess", "effective draws of what is averaged", dims, series=True),
        Variable(
            "converged",
            "whether chains agree, have enough draws, and none of them failed",
            dims,
            "bool",
            series=True,
        ),
        Variable("max_r_hat", "largest R-hat; NaN if all are constant"),
        Variable("min_ess", "least effective draws"),
        Variable("num_averages", "number of averages", dtype="int64"),
        Variable(
            "num_unconverged", "of these, how many are not converged", dtype="int64"
        ),
        Variable("verdict", "converged, or why it is not", dtype="str"),
        Variable("reason", "why, in words, with numbers", dtype="str"),
    )
