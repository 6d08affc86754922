"""`curvflow check`: measured against expected."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
    open_study_store,
    print_json,
)
from curvflow.cli.text.tables import echo_missing
from curvflow.schemas.words import node_label

if TYPE_CHECKING:
    from curvflow.flows.results.check import Finding

NOTHING = """\
the study expects nothing; to have a value checked, add it to the study, such as
expect: [{stage: table, quantity: trace, value: 8.2, sd: 0.3, source: "paper"}]"""
NO_BREAK = "\N{NO-BREAK SPACE}"
CODES = {"contradicted": 3, "not measured": 1}


def command(
    study: StudyPath,
    *,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compare measured with expected; exit code 3 if they contradict."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.api import results_of
    from curvflow.flows.results.check import check

    opened = open_study_store(study, store, profile, overrides)
    results = results_of(opened, run)
    findings = check(results, opened.study.expect)
    for stage in dict.fromkeys(
        expectation.stage for expectation in opened.study.expect
    ):
        echo_missing(results, stage)
    if as_json:
        print_json([finding.as_json() for finding in findings])
    else:
        typer.echo("\n".join(map(_line, findings)) or NOTHING)
    verdicts = {finding.verdict for finding in findings}
    code = max((CODES.get(verdict, 0) for verdict in verdicts), default=0)
    if code:
        raise typer.Exit(code)


def _line(finding: Finding) -> str:
    expected = finding.expected
    node = node_label(expected.stage, finding.coords)
    within = "" if expected.sd is None else f" +- {expected.sd:g}"
    if expected.limits is not None:
        low, high = expected.limits
        within = f" in [{low:g}, {high:g}]"
        if expected.within_sems is not None:
            within += f" or within {expected.within_sems:g} standard errors"
    # A number and its tolerance stay on one line.
    expected_text = f"expected {expected.value:g}{within}".replace(" ", NO_BREAK)
    doubts = f"; {finding.doubts}" if finding.doubts else ""
    return textwrap.fill(
        f"{node} {expected.label}: {_measured(finding)}{expected_text}{doubts}",
        80,
        initial_indent=f"{finding.verdict:<13} ",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(NO_BREAK, " ")


def _measured(finding: Finding) -> str:
    from curvflow.schemas.records.tables import cell

    if math.isnan(finding.measured):
        return ""
    value = cell(finding.measured, finding.sem)
    error = f" +- {cell(finding.sem, finding.sem)}" if finding.sem > 0 else ""
    return f"{value}{error}, "
