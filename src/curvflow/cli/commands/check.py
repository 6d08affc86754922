"""`curvflow check`: measured against expected."""

from __future__ import annotations

import math
import textwrap
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
    echo,
    open_study_store,
    print_json,
)
from curvflow.cli.text.tables import echo_missing
from curvflow.schemas.words import counted, node_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from curvflow.flows.results.findings import Finding
    from curvflow.flows.results.results import Results
    from curvflow.schemas.study.expectations import Expectation

NOTHING = """\
the study expects nothing; to have a value checked, add it to the study, such as
expect: [{stage: table, quantity: trace, value: 8, sd: 0.3, n: 10, source: paper}]"""
NO_BREAK = "\N{NO-BREAK SPACE}"
# Exit codes; that of the gravest verdict counts.
CODES = {"contradicted": 3, "differs_in_mean": 4, "not measured": 1, "undecided": 5}
WIDTH = 15  # of a verdict
LONG = 1e5  # deviations from here on are written with an exponent

Holm = Annotated[
    bool,
    typer.Option(
        "--holm", help="correct the tests of means for the number of them, by Holm"
    ),
]


def command(
    study: StudyPath,
    *,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    holm: Holm = False,
    as_json: AsJson = False,
) -> None:
    """Compare measured with expected; the exit code says how they agree."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.api import results_of
    from curvflow.flows.results.check import check
    from curvflow.flows.results.findings import VERDICTS, corrected, counts

    opened = open_study_store(study, store, profile, overrides, max_nodes)
    results = results_of(opened, run)
    findings = check(results, opened.study.expect)
    if holm:
        findings = corrected(findings)
        tests = sum(finding.corrected is not None for finding in findings)
        text = f"{counted(tests, 'test')} of means corrected"
        echo(f"{text}; limits and intervals are not", err=True)
    _echo_lacking(results, opened.study.expect)
    tally = counts(findings)
    if as_json:
        rows = [finding.as_json() for finding in findings]
        print_json({"counts": tally, "findings": rows})
    else:
        _echo_findings(findings)
    gravest = next((verdict for verdict in VERDICTS if tally[verdict]), "agrees")
    if gravest in CODES:
        raise typer.Exit(CODES[gravest])


def _echo_lacking(results: Results, expectations: Sequence[Expectation]) -> None:
    """State on stderr what lacks for a comparison: results, and runs of a source."""
    from curvflow.flows.results.findings import without_runs

    for stage in dict.fromkeys(expectation.stage for expectation in expectations):
        echo_missing(results, stage)
    if lacking := without_runs(expectations):
        echo(
            f"{counted(lacking, 'expectation')} with sd and without n: means are not "
            "compared. Add n, the runs of the source.",
            err=True,
        )


def _echo_findings(findings: Sequence[Finding]) -> None:
    from curvflow.flows.results.findings import counts_text

    echo("\n".join(map(_line, findings)) or NOTHING)
    total = f"{counted(len(findings), 'value')}: {counts_text(findings)}"
    echo(textwrap.fill(total, 80, subsequent_indent="  "))


def _line(finding: Finding) -> str:
    expected = finding.expected
    node = node_label(expected.stage, finding.coords)
    # A number and its tolerance stay on one line.
    expected_text = f"expected {expected.text}".replace(" ", NO_BREAK)
    notes = f"; {finding.notes}" if finding.notes else ""
    return textwrap.fill(
        f"{node} {expected.label}: {_measured(finding)}{expected_text}"
        f"{_errors(finding)}{notes}",
        80,
        initial_indent=f"{finding.verdict:<{WIDTH}} ",
        subsequent_indent=" " * (WIDTH + 1),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(NO_BREAK, " ")


def _errors(finding: Finding) -> str:
    """Return the difference in deviations of one run and in errors of the means."""
    parts = [
        f"{number:{'+.1f' if abs(number) < LONG else '+.1e'}} {of}".replace(
            " ", NO_BREAK
        )
        for number, of in ((finding.scatter, "sd of a run"), (finding.z, "errors"))
        if math.isfinite(number)
    ]
    return f": {', '.join(parts)}" if parts else ""


def _measured(finding: Finding) -> str:
    from curvflow.schemas.records.tables import cell

    if math.isnan(finding.measured):
        return ""
    value = cell(finding.measured, finding.sem)
    error = f" +- {cell(finding.sem, finding.sem)}" if finding.sem > 0 else ""
    return f"{value}{error}, "
