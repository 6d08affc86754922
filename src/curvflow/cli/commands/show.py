"""`curvflow show`: results as a table, CSV or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import (
    AsJson,
    MaxNodes,
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
    Variables,
    Where,
    echo,
    open_study_results,
    parse_labels,
    print_json,
    study_options,
)
from curvflow.cli.text.tables import echo_missing
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.results.results import Results
    from curvflow.schemas.kind import Kind
    from curvflow.schemas.records.tables import Rows

AXES = 24  # width of the column of axes, in characters
STATUSES = ("ok", "diverged", "removed", "failed", "missing")
STAGE = typer.Argument(metavar="STAGE", help="its name; all of them by default")
ALL = typer.Option("--all", help="print long tables whole, as JSON and CSV are")


def command(
    study: StudyPath,
    stage: Annotated[str | None, STAGE] = None,
    *,
    where: Where = None,
    variables: Variables = None,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV on stdout")] = False,
    whole: Annotated[bool, ALL] = False,
) -> None:
    """Show results, a record per node and element, or list the stages."""
    if as_json and as_csv:
        raise RequestError("show: --json cannot be combined with --csv. Leave one out.")
    chosen = study_options(store, profile, overrides, max_nodes)
    results = open_study_results(study, run, chosen)
    if stage is None:
        if where or variables or as_csv or whole:
            raise RequestError(
                "show: expected STAGE with --where, --variable, --csv or --all, got "
                "none. Name a stage; `curvflow show STUDY` lists them."
            )
        _print_overview(results, as_json=as_json)
        return
    labels = parse_labels(where)
    echo_missing(results, stage, labels)
    if as_json:
        print_json(results.records(stage, where=labels, variables=variables))
    elif as_csv:
        _print_csv(results.records(stage, where=labels, variables=variables))
    else:
        _print_tables(results, stage, labels, variables, whole=whole)
    _echo_notes(results, stage, labels)


def _echo_notes(results: Results, stage: str, labels: Mapping[str, str]) -> None:
    """State on stderr how results were chosen and made, and what they do not see."""
    view = results.view(stage).where(labels)
    made = *results.made_of(stage), *results.made_without(stage)
    for line in (*view.chosen(), *view.blind_spots(), *made):
        echo(f"{stage}: {line}", err=True)


def _print_csv(rows: Rows) -> None:
    from curvflow.flows.results.outputs import as_csv

    echo(as_csv(rows), nl=False)


def _print_tables(
    results: Results,
    stage: str,
    labels: Mapping[str, str],
    variables: list[str] | None,
    *,
    whole: bool,
) -> None:
    kind = results.view(stage).kind
    names = _with_units(kind, variables)
    rows = results.records(stage, where=labels, variables=names)
    echo(_tables(rows, kind, whole=whole))


def _with_units(kind: Kind, variables: list[str] | None) -> list[str] | None:
    """Add the variable `units`, where each row has its own."""
    has_units = any(variable.name == "units" for variable in kind.outputs)
    return ["units", *variables] if variables and has_units else variables


def _tables(rows: Rows, kind: Kind, *, whole: bool) -> str:
    from curvflow.cli.text.tables import truncated_tables
    from curvflow.schemas.records.records import time_variables
    from curvflow.schemas.records.tables import render

    units = {v.name: v.units for v in (*kind.outputs, *time_variables(kind))}
    return render(rows, units) if whole else truncated_tables(rows, units)


def _print_overview(results: Results, *, as_json: bool) -> None:
    """Print the stages with dims, numbers of results, and unconverged estimates."""
    from curvflow.flows.results.convergence_counts import verdicts_json

    views = {stage: results.view(stage) for stage in results}
    judged = {stage: counts for stage in results if (counts := results.verdicts(stage))}
    if as_json:
        verdicts = verdicts_json(judged)
        print_json(
            {
                stage: {"kind": view.use, "dims": list(view.dims)}
                | {status: view.counts()[status] for status in STATUSES}
                | {name: verdicts[name][stage] for name in verdicts if stage in judged}
                for stage, view in views.items()
            }
        )
        return
    from curvflow.cli.text.plan_text import unconverged_lines
    from curvflow.cli.text.tables import name_columns

    rows = [("stage", "kind", "results", "axes")]
    for stage, view in views.items():
        states = ", ".join(f"{n} {status}" for status, n in view.counts().items())
        rows.append((stage, view.use, states, ", ".join(view.dims) or "none"))
    fronts = name_columns([row[:3] for row in rows], AXES)
    for front, row in zip(fronts, rows, strict=True):
        first, *more = textwrap.wrap(row[3], AXES - 2, break_long_words=False)
        below = " " * (len(front.rpartition("\n")[2]) + 2)
        echo("\n".join([f"{front}  {first}", *(below + line for line in more)]))
    for line in unconverged_lines(judged):
        echo(line)
    for stage, view in views.items():
        for line in view.blind_spots():
            echo(f"{stage}: {line}")
