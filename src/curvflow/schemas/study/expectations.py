"""`expect:`, known values with their sources, to be set beside what is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError, field_validator, model_validator

from curvflow.errors import nearest
from curvflow.schemas.kind import error_of
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.params import Params
from curvflow.schemas.study.axes import Axis, nearest_label
from curvflow.schemas.study.connect import EPOCH
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.edges import numeric_variables
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.validation_messages import find_problems
from curvflow.schemas.study.yaml_source import Path, shown

Limits = Annotated[tuple[float, float], Field(strict=False)]


class Expectation(Params):
    """A known value of a quantity, and how far from it a result may be."""

    stage: str = Field(description="stage that measures it")
    where: dict[str, Label] = Field(
        default_factory=dict, description="label per axis; axes left out mean all"
    )
    quantity: str = Field(description="variable, or quantity of a table")
    value: float = Field(description="the value known")
    sd: float | None = Field(None, gt=0, description="its standard deviation")
    within: Annotated[float, Field(gt=0)] | Limits | None = Field(
        None, description="largest difference from it, or the limits [low, high]"
    )
    within_sems: float | None = Field(
        None,
        gt=0,
        description="beside within: a difference of so many of the measured standard "
        "errors is near enough as well",
    )
    source: str = Field("", description="where it is from: paper, table, equation")

    @field_validator("within")
    @classmethod
    def _in_order(cls, within: float | Limits | None) -> float | Limits | None:
        if isinstance(within, tuple) and within[0] > within[1]:
            raise ValueError(f"expected [low, high], got {shown(within)}")
        return within

    @model_validator(mode="after")
    def _one_tolerance(self) -> Expectation:
        if (self.sd is None) == (self.within is None):
            got = "neither" if self.sd is None else "both"
            raise ValueError(f"expected one of 'sd' and 'within', got {got}")
        if self.within_sems is not None and self.within is None:
            raise ValueError(
                "expected 'within_sems' beside 'within' alone, got it with 'sd'"
            )
        return self

    @property
    def limits(self) -> tuple[float, float] | None:
        """Smallest and largest value allowed, where `within` states them."""
        if self.within is None or isinstance(self.within, tuple):
            return self.within
        return self.value - self.within, self.value + self.within


def read_expectations(
    document: Document, stages: Mapping[str, Stage], axes: Mapping[str, Axis]
) -> tuple[Expectation, ...]:
    """Read what the study expects.

    Args:
        document: the resolved study.
        stages: its stages.
        axes: its axes.

    Returns:
        The expectations in the order written.

    Raises:
        StudyError: an entry is badly formed, or its stage, axis, label or quantity
            does not exist.
    """
    item = document.at(("expect",))
    if item is None:
        return ()
    if not isinstance(item.value, list):
        message = f"expected a list, got {shown(item.plain())}"
        raise document.error(("expect",), message)
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
    entry = {key: item.plain() for key, item in document.mapping(path).items()}
    document.refuse_unknown(path, Expectation.model_fields, "a key of an expectation")
    try:
        found = Expectation.model_validate(entry)
    except ValidationError as error:
        first = find_problems(error, Expectation, entry)[0]
        wording = first.wording
        full = (*path, *first.path)
        raise document.error(
            full, wording.message, wording.hint, key=first.key
        ) from None
    if found.stage not in stages:
        message = f"expected a stage of the study, got {shown(found.stage)}"
        hint = nearest(found.stage, stages)
        raise document.error((*path, "stage"), message, hint)
    _check_where(document, path, found, stages[found.stage], axes)
    _check_quantity(document, path, found, stages)
    _check_row(document, path, found, stages, axes)
    return found


def _check_where(
    document: Document,
    path: Path,
    found: Expectation,
    stage: Stage,
    axes: Mapping[str, Axis],
) -> None:
    for axis, label in found.where.items():
        full = (*path, "where", axis)
        if axis not in stage.dims:
            message = f"expected a dimension of '{stage.name}', got {shown(axis)}"
            hint = nearest(axis, stage.dims) or "It has none."
            raise document.error(full, message, hint, key=True)
        if axis != EPOCH and label not in axes[axis].labels:
            message = f"expected a label of axis '{axis}', got {shown(label)}"
            hint = nearest_label(label, axes[axis].labels)
            raise document.error(full, message, hint)


def _check_quantity(
    document: Document, path: Path, found: Expectation, stages: Mapping[str, Stage]
) -> None:
    stage = stages[found.stage]
    known = {variable.name for variable in numeric_variables(stage.kind)}
    if issubclass(stage.kind.returns, Table):
        producers = [name for names in stage.inputs.values() for name in names]
        points = stage.template.samples()
        chosen = {
            n for point in points for n in stage.kind.selected(stage.params(point))
        }
        known |= chosen or {
            v.name for name in producers for v in numeric_variables(stages[name].kind)
        }
    # A table adds the stage or the element where a variable alone is not unique.
    if known.isdisjoint(re.findall(r"\w+", found.quantity)):
        message = f"expected a quantity of '{stage.name}', got '{found.quantity}'"
        hint = nearest(found.quantity, known)
        raise document.error((*path, "quantity"), message, hint)
    # A table has its errors in a column.
    has_error = error_of(stage.kind, found.quantity) or stage.kind.output("sem")
    if found.within_sems is not None and not has_error:
        message = f"expected a quantity with a standard error, got '{found.quantity}'"
        column = "sem" if issubclass(stage.kind.returns, Table) else ""
        lacking = column or f"{found.quantity}_sem"
        hint = f"Remove 'within_sems': {stage.kind.name} has no {lacking}."
        raise document.error((*path, "within_sems"), message, hint)


def _check_row(
    document: Document,
    path: Path,
    found: Expectation,
    stages: Mapping[str, Stage],
    axes: Mapping[str, Axis],
) -> None:
    stage = stages[found.stage]
    taken = [stages[name] for names in stage.inputs.values() for name in names]
    at = [one.at.epochs for one in taken if EPOCH in one.dims]
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
    if not found.quantity.endswith(tuple(rows)):
        message = f"expected a row of '{stage.name}', got '{found.quantity}'"
        name = found.quantity.partition(": ")[0]
        known = [name + row for row in rows]
        hint = nearest(found.quantity, known, f"One is '{known[0]}'.")
        raise document.error((*path, "quantity"), message, hint)
