"""Expectations: the known values, with sources, under `expect:`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Annotated

from pydantic import Field, ValidationError, field_validator, model_validator

from curvflow.errors import nearest
from curvflow.schemas.keys import normalised
from curvflow.schemas.kind import error_of
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.params import Params
from curvflow.schemas.study.axes import Axis, nearest_label
from curvflow.schemas.study.connect import EPOCH
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.edges import numeric_variables
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.validation_messages import find_problems
from curvflow.schemas.study.yaml_source import Path, short_yaml

Limits = Annotated[tuple[float, float], Field(strict=False)]


class Expectation(Params):
    """A known value of a quantity, with a tolerance."""

    stage: str = Field(description="stage that measures it")
    where: dict[str, Label] = Field(
        default_factory=dict, description="label per axis; axes left out mean all"
    )
    quantity: str = Field(description="variable, or quantity of a table")
    column: str | None = Field(
        None, description="of a table: the column compared; null takes its statistic"
    )
    value: float | None = Field(None, description="the known value")
    sd: float | None = Field(
        None, gt=0, description="standard deviation of one run of its source"
    )
    n: int | None = Field(
        None, ge=2, description="with sd: runs of the source, whose mean the value is"
    )
    se: float | None = Field(None, gt=0, description="its standard error")
    within: Annotated[float, Field(gt=0)] | Limits | None = Field(
        None, description="largest difference from it, or the limits [low, high]"
    )
    within_sems: float | None = Field(
        None,
        gt=0,
        description="with within: a difference of so many of the measured standard "
        "errors is also close enough",
    )
    at_least: float | None = Field(
        None, description="in place of a value: what its interval must not be below"
    )
    at_most: float | None = Field(
        None, description="in place of a value: what its interval must not be above"
    )
    source: str = Field("", description="its source: paper, table, equation")

    @field_validator("within")
    @classmethod
    def _in_order(cls, within: float | Limits | None) -> float | Limits | None:
        if isinstance(within, tuple) and within[0] > within[1]:
            raise ValueError(
                f"expected [low, high], got {short_yaml(within)}. Swap the two."
            )
        return within

    @model_validator(mode="after")
    def _one_tolerance(self) -> Expectation:
        names = ("sd", "se", "within", "at_least", "at_most")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) > 1 and given != ["at_least", "at_most"]:
            raise ValueError(
                f"'{given[0]}' cannot be combined with '{given[1]}'. Remove one of "
                "them."
            )
        if not given:
            raise ValueError(
                "expected one of 'sd', 'se', 'within', 'at_least' and 'at_most', got "
                "none. Add one."
            )
        if self.is_one_sided and self.value is not None:
            raise ValueError(
                f"'value' cannot be combined with '{given[0]}'. Remove one of them."
            )
        if not self.is_one_sided and self.value is None:
            raise ValueError(f"expected a value with '{given[0]}', got none. Add it.")
        least, most = self.at_least, self.at_most
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"expected at_least of at most {most:g}, that of at_most, got "
                f"{least:g}. Swap them."
            )
        return self

    @model_validator(mode="after")
    def _fitting(self) -> Expectation:
        """Refuse what the tolerance or the column leaves no use for."""
        tolerance = "sd" if self.sd is not None else "se" if self.se is not None else ""
        unfit = tolerance or ("at_least" if self.is_one_sided else "within")
        if self.n is not None and self.sd is None:
            raise ValueError(
                f"'n' cannot be combined with '{unfit}'. Remove one of them."
            )
        if self.within_sems is not None and self.within is None:
            raise ValueError(
                f"'within_sems' cannot be combined with '{unfit}'. Use 'within'."
            )
        if self.within_sems is not None and self.column is not None:
            raise ValueError(
                "'within_sems' cannot be combined with 'column', which has no standard "
                "error. Remove one of them."
            )
        return self

    @property
    def label(self) -> str:
        """The quantity, with the column if one is named."""
        return f"{self.quantity} {self.column}" if self.column else self.quantity

    @property
    def text(self) -> str:
        """The expected value, with its error or limits."""
        if self.is_one_sided:
            ends = (("at least", self.at_least), ("at most", self.at_most))
            return " and ".join(f"{w} {end:g}" for w, end in ends if end is not None)
        if self.limits is not None:
            low, high = self.limits
            errors = self.within_sems
            more = "" if errors is None else f" or within {errors:g} standard errors"
            return f"{self.value:g} in [{low:g}, {high:g}]{more}"
        if self.se is not None:
            return f"{self.value:g} +- {self.se:g}"
        runs = f" over {self.n} runs" if self.n is not None else ""
        return f"{self.value:g}, sd {self.sd:g}{runs}"

    @property
    def is_one_sided(self) -> bool:
        """True if an interval must lie on one side, or between two limits."""
        return self.at_least is not None or self.at_most is not None

    @property
    def limits(self) -> tuple[float, float] | None:
        """Smallest and largest value allowed; None without `within`."""
        if self.within is None or isinstance(self.within, tuple):
            return self.within
        assert self.value is not None
        # As written: 0.8 is within 0.1 of 0.7, though 0.7 + 0.1 is rounded below it.
        value, within = (Decimal(repr(x)) for x in (self.value, self.within))
        return float(value - within), float(value + within)


def read_expectations(
    document: Document, stages: Mapping[str, Stage], axes: Mapping[str, Axis]
) -> tuple[Expectation, ...]:
    """Return the expectations in the order written; raise StudyError for a bad one."""
    item = document.at(("expect",))
    if item is None:
        return ()
    if not isinstance(item.value, list):
        message = f"expected a list, got {short_yaml(item.plain())}"
        raise document.error(("expect",), message, "Begin each of them with '- '.")
    return tuple(
        _read(document, index, stages, axes) for index in range(len(item.value))
    )


def _read(
    document: Document,
    index: int,
    stages: Mapping[str, Stage],
    axes: Mapping[str, Axis],
) -> Expectation:
    path = ("expect", index)
    written = {key: item.plain() for key, item in document.mapping(path).items()}
    entry = normalised(written)
    document.refuse_unknown(path, Expectation.model_fields, "a key of an expectation")
    try:
        expectation = Expectation.model_validate(entry)
    except ValidationError as error:
        first = find_problems(error, Expectation, entry)[0]
        wording = first.wording
        full = (*path, *first.path)
        raise document.error(
            full, wording.message, wording.hint, key=first.key
        ) from None
    if expectation.stage not in stages:
        message = f"expected a stage of the study, got {short_yaml(expectation.stage)}"
        hint = nearest(expectation.stage, stages)
        raise document.error((*path, "stage"), message, hint)
    _check_where(document, path, expectation, stages[expectation.stage], axes)
    _check_quantity(document, path, expectation, stages)
    _check_row(document, path, expectation, stages, axes)
    return expectation


def _check_where(
    document: Document,
    path: Path,
    expectation: Expectation,
    stage: Stage,
    axes: Mapping[str, Axis],
) -> None:
    for axis, label in expectation.where.items():
        full = (*path, "where", axis)
        if axis not in stage.dims:
            message = f"expected a dimension of '{stage.name}', got {short_yaml(axis)}"
            hint = nearest(axis, stage.dims) or "It has none."
            raise document.error(full, message, hint, key=True)
        if axis != EPOCH and label not in axes[axis].known:
            message = f"expected a label of axis '{axis}', got {short_yaml(label)}"
            hint = nearest_label(label, axes[axis].labels)
            raise document.error(full, message, hint)


def _check_quantity(
    document: Document,
    path: Path,
    expectation: Expectation,
    stages: Mapping[str, Stage],
) -> None:
    stage = stages[expectation.stage]
    is_table = issubclass(stage.kind.returns, Table)
    if is_table and not stage.kind.output("quantity"):
        message = f"expected a table of quantities, got {stage.kind.name}"
        hint = "Name a stage that it takes."
        raise document.error((*path, "stage"), message, hint)
    known = {variable.name for variable in numeric_variables(stage.kind)}
    if expectation.column is not None:
        _check_column(document, path, expectation.column, stage, known)
    if is_table:
        producers = [name for names in stage.inputs.values() for name in names]
        points = stage.template.samples()
        chosen = {
            n for point in points for n in stage.kind.selected(stage.params(point))
        }
        known |= chosen or {
            v.name for name in producers for v in numeric_variables(stages[name].kind)
        }
    # A table adds the stage or the element where a variable alone is not unique.
    words = re.findall(r"\w+", expectation.quantity)
    if known.isdisjoint(words if is_table else [expectation.quantity]):
        message = f"expected a quantity of '{stage.name}', got '{expectation.quantity}'"
        hint = nearest(expectation.quantity, known)
        raise document.error((*path, "quantity"), message, hint)
    # A table has its errors in a column.
    has_error = error_of(stage.kind, expectation.quantity) or stage.kind.output("sem")
    if expectation.within_sems is not None and not has_error:
        message = (
            f"expected a quantity with a standard error, got '{expectation.quantity}'"
        )
        column = "sem" if is_table else ""
        lacking = column or f"{expectation.quantity}_sem"
        hint = f"Remove 'within_sems': {stage.kind.name} has no {lacking}."
        raise document.error((*path, "within_sems"), message, hint)


def _check_column(
    document: Document, path: Path, column: str, stage: Stage, known: Set[str]
) -> None:
    if not issubclass(stage.kind.returns, Table):
        message = f"column cannot be combined with {stage.kind.name}, which is no table"
        raise document.error((*path, "column"), message, "Remove it.")
    if column not in known:
        message = f"expected a column of '{stage.name}', got '{column}'"
        raise document.error((*path, "column"), message, nearest(column, known))


def _check_row(
    document: Document,
    path: Path,
    expectation: Expectation,
    stages: Mapping[str, Stage],
    axes: Mapping[str, Axis],
) -> None:
    stage = stages[expectation.stage]
    taken = [stages[name] for names in stage.inputs.values() for name in names]
    at = [producer.at.epochs for producer in taken if EPOCH in producer.dims]
    # Epochs that are not listed show when the nodes are laid out.
    if stage.kind.rows is None or not all(at):
        return
    labels = {name: axis.labels for name, axis in axes.items()}
    labels[EPOCH] = tuple(sorted({epoch for epochs in at for epoch in epochs}))
    rows = [
        row
        for sample in stage.template.samples()
        for row in stage.kind.rows(stage.params(sample), labels)
    ]
    if not expectation.quantity.endswith(tuple(rows)):
        message = f"expected a row of '{stage.name}', got '{expectation.quantity}'"
        name = expectation.quantity.partition(": ")[0]
        known = [name + row for row in rows]
        hint = nearest(expectation.quantity, known, f"One is '{known[0]}'.")
        raise document.error((*path, "quantity"), message, hint)
