"""Compare measured values with expectations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.errors import nearest
from curvflow.flows.results.findings import (
    CONFIDENCE,
    FEW,
    LEFT_OUT,
    Finding,
    normal_half,
)
from curvflow.flows.results.node_results import View
from curvflow.flows.results.results import Results
from curvflow.schemas.kind import Kind, error_of
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.shared.tables import CONVERGED, UNCONVERGED
from curvflow.schemas.nodes import FAILED, Label, Table
from curvflow.schemas.study.expectations import Expectation

# The statistic of a table, by its column; each kind has one of them.
MEASURED = (
    "mean",
    "coverage",
    "correlation",
    "mean_rank",
    "exponent",
    "distance",
    "argument",
    "accuracy",
    "localization",
)
NO_INTERVAL: Mapping[str, Any] = {"low": math.nan, "high": math.nan}
# What a condition is that nothing shows to hold.
ASSUMED = "assumed"
# Why a node has no value, by its status.
WITHOUT_VALUE = {
    "failed": "its node failed",
    "missing": "its node has no result",
    "removed": "collection has removed it",
    "diverged": "its node diverged",
}


# Rows of each node, by stage, labels and variables: what many expectations read.
Rows = dict[object, Mapping[tuple[Label, ...], Sequence[Mapping[str, Any]]]]


def check(
    results: Results, expected: tuple[Expectation, ...], rows: Rows | None = None
) -> list[Finding]:
    """Compare results with a study's expectations: a finding per expectation and node.

    Args:
        results: of the study.
        expected: the expectations.
        rows: what earlier calls for the same results have read; more is added.

    Raises:
        CorruptPayloadError: a result cannot be read.
        RemovedPayloadError: collection has removed a result meanwhile.
    """
    read: Rows = {} if rows is None else rows
    return [
        finding
        for expectation in expected
        for finding in _findings(results, expectation, read)
    ]


def _findings(results: Results, expected: Expectation, read: Rows) -> Iterator[Finding]:
    where = {axis: str(label) for axis, label in expected.where.items()}
    view = results.view(expected.stage).where(where)
    if not view.points:
        yield Finding(expected, expected.where, lacks="no node has all these labels")
        return
    wanted = _Wanted.of(view.kind, expected.quantity)
    key = expected.stage, tuple(sorted(where.items())), wanted.names
    if key not in read:
        read[key] = _rows(results, expected.stage, where, wanted.names)
    for number, point in enumerate(view.points):
        yield _finding(view, number, expected, wanted, read[key].get(point, ()))


@dataclass(frozen=True)
class _Wanted:
    """Variables that an expectation reads of the nodes of a stage.

    Attributes:
        names: of variables; None is the whole of a table.
        error: of these, the standard error; empty if there is none.
        judge: the one that judges convergence; empty if none does.
        basis: the one that says how a condition is known; empty if none does.
    """

    names: tuple[str, ...] | None
    error: str
    judge: str
    basis: str

    @classmethod
    def of(cls, kind: Kind, name: str) -> _Wanted:
        """Return what there is of a quantity."""
        error, judge, basis = (
            error_of(kind, name),
            _judge(kind, name),
            _basis(kind, name),
        )
        if issubclass(kind.returns, Table):
            return cls(None, "", judge, basis)
        # Not every quantity has a standard error or an interval beside it.
        several = (name, error, f"{name}_low", f"{name}_high", judge, basis)
        names = tuple(variable for variable in several if kind.output(variable))
        return cls(names, error if error in names else "", judge, basis)


def _finding(
    view: View,
    number: int,
    expected: Expectation,
    wanted: _Wanted,
    rows: Sequence[Mapping[str, Any]],
) -> Finding:
    """Return what was measured at one point of a stage."""
    is_table = wanted.names is None
    if is_table:
        values = _cells(
            rows,
            expected,
            _confidence(view, number),
            is_resampled=_is_resampled(view, number),
        )
    else:
        name = expected.quantity
        values = [
            (_of_node(row, name, wanted.error), row) for row in rows if name in row
        ]
    nothing: Cell = {}, {}
    facts, row = values[0] if len(values) == 1 else nothing
    return Finding(
        expected,
        view.coords(number),
        **facts,
        unconverged=_unconverged(row, wanted.judge),
        paired=row.get("above", -1) >= 0,
        settings=str(row.get(DIFFERING, "")),
        assumed=wanted.basis if row.get(wanted.basis) == ASSUMED else "",
        failed=int(row.get(FAILED, 0)) if is_table else 0,
        left_out={n: int(row[n]) for n in LEFT_OUT if n in row},
        lacks=_lacks(view, number, len(values), rows, expected),
    )


def _rows(
    results: Results,
    stage: str,
    where: Mapping[str, str],
    variables: Sequence[str] | None,
) -> Mapping[tuple[Label, ...], Sequence[Mapping[str, Any]]]:
    """Read the rows of each node of a stage at some labels."""
    dims = results.view(stage).dims
    by_point: dict[tuple[Label, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in results.records(stage, where=where, variables=variables):
        by_point[tuple(row[dim] for dim in dims)].append(row)
    return by_point


def _confidence(view: View, number: int) -> float:
    """Return of which confidence a table's intervals are.

    Those of shares of intervals that hold the truth are always of 95 %: the parameter
    says of which the intervals are that are judged.
    """
    receipt = view.receipts[number]
    if receipt is None or view.kind.output("coverage"):
        return CONFIDENCE
    return float(receipt.params.get("confidence", CONFIDENCE))


def _is_resampled(view: View, number: int) -> bool:
    """Return whether a table's intervals are by resampling."""
    receipt = view.receipts[number]
    return receipt is not None and receipt.params.get("interval") == "bootstrap"


def _lacks(
    view: View,
    number: int,
    num_values: int,
    rows: Sequence[Mapping[str, Any]],
    expected: Expectation,
) -> str:
    """Return why a node has no value, or one of a node that diverged."""
    status = view.status(number)
    if num_values > 1:
        return f"there are {num_values} such values, not one"
    if status in WITHOUT_VALUE:
        return WITHOUT_VALUE[status]
    known = {str(row["quantity"]) for row in rows if "quantity" in row}
    if num_values == 1 or not known or expected.quantity in known:
        return ""
    hint = nearest(expected.quantity, known)
    return "its table has no such row" + f" ({hint})" * bool(hint)


# What a finding has of a measured value, and the row that it is from.
Cell = tuple[dict[str, Any], Mapping[str, Any]]


def _cells(
    rows: Iterable[Mapping[str, Any]],
    expected: Expectation,
    confidence: float = CONFIDENCE,
    *,
    is_resampled: bool = False,
) -> list[Cell]:
    """Return values of a table, with their errors as far as it states them."""
    named = expected.column
    columns = MEASURED if named is None else (named,)
    cells: list[Cell] = []
    for row in rows:
        for column in columns if row.get("quantity") == expected.quantity else ():
            if column in row:
                is_statistic = column in MEASURED
                facts = (_of_statistic if is_statistic else _of_column)(
                    row, column, confidence
                )
                count = min(row.get("count", FEW), row.get("baseline_count", FEW))
                if count < FEW:
                    facts |= _of_few(facts, count, is_resampled=is_resampled)
                cells.append((facts, row))
    return cells


def _of_few(
    facts: Mapping[str, Any], count: int, *, is_resampled: bool
) -> dict[str, Any]:
    """Return what few runs leave of an interval and of the freedom of its error.

    Samples drawn from few runs are between the least and the greatest of these, so that
    one mean of three in eight would seem to have a sign that it has not; and runs that
    are all equal may be so by chance.
    """
    is_point = facts.get("sem") == 0 and facts["low"] == facts["high"]
    if not (is_point or is_resampled):
        return {}
    freedom = facts.get("freedom")
    return {**NO_INTERVAL, "freedom": count - 1 if freedom is None else freedom}


def _of_column(
    row: Mapping[str, Any], column: str, confidence: float
) -> dict[str, Any]:
    """Return a named column, with its interval if the table states one."""
    measured = {"measured": _number(row[column])}
    if f"{column}_low" not in row:
        return measured
    low, high = (_number(row.get(f"{column}_{end}")) for end in ("low", "high"))
    ends = {"low": low, "high": high, "confidence": confidence}
    return measured | ends | {"sort": "estimate"}


def _of_statistic(
    row: Mapping[str, Any], column: str, confidence: float
) -> dict[str, Any]:
    low, high = (
        _number(row.get(end, row.get(f"{column}_{end}"))) for end in ("low", "high")
    )
    count = row.get("count")
    is_plain = column == "mean" and "baseline_count" not in row
    is_plain |= column == "argument" and row["interval"] == "repetitions"
    return {
        "measured": _number(row[column]),
        "sem": _number(row.get("sem", row.get(f"{column}_sem"))),
        "low": low,
        "high": high,
        "confidence": confidence,
        "freedom": count - 1 if is_plain and isinstance(count, int) else None,
        "sort": "estimate" if column == "distance" else "mean",
    }


def _of_node(row: Mapping[str, Any], name: str, error: str) -> dict[str, Any]:
    measured = _number(row[name])
    if not error and f"{name}_low" not in row:
        return {"measured": measured}
    sem = _number(row.get(error))
    half = normal_half(CONFIDENCE) * sem
    return {
        "measured": measured,
        "sem": sem,
        "low": _number(row.get(f"{name}_low", measured - half)),
        "high": _number(row.get(f"{name}_high", measured + half)),
        "sort": "estimate",
    }


def _judge(kind: Kind, name: str) -> str:
    """Return the name of the variable that judges another's convergence, if any.

    Of elements that each have a flag, none is of the node's single value.
    """
    variable = kind.output(name)
    verdict = variable and variable.judged_by and kind.output(variable.judged_by)
    return verdict.name if verdict and not verdict.dims else ""


def _basis(kind: Kind, name: str) -> str:
    """Return the name of the variable that says how a condition is known, if any."""
    variable = kind.output(name)
    return (variable and variable.rests_on) or ""


def _unconverged(row: Mapping[str, Any], judge: str) -> int | None:
    if judge in row:
        return int(row[judge] not in (True, CONVERGED))
    count = row.get(UNCONVERGED)
    return count if isinstance(count, int) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
