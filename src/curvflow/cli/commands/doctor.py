"""`curvflow doctor`: checks of libraries, machine and store, with remedies."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import AsJson, StoreUrl, echo, print_json

if TYPE_CHECKING:
    from curvflow.flows.doctor.machine import Finding

Study = Annotated[
    Path | None, typer.Argument(help="look at its store as well", metavar="[STUDY]")
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDR", help="look at this Dask scheduler and its workers"),
]

WIDTH, INDENT = 80, 25


def command(
    study: Study = None,
    *,
    store: StoreUrl = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Check libraries, machine and store; say how to mend each."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.doctor.examine import examine

    findings = []
    for finding in examine(study, store=store, scheduler=scheduler):
        findings.append(finding)
        if not as_json:
            echo(_finding_text(finding))
    states = Counter(finding.state for finding in findings)
    if as_json:
        rows = [finding.as_json() for finding in findings]
        print_json({"healthy": not states["FAIL"], "findings": rows})
    else:
        counts = ", ".join(
            f"{states[state]} {state}" for state in ("ok", "warn", "FAIL")
        )
        echo(f"{len(findings)} checks: {counts}")
        if study is None and store is None:
            echo("no store was looked at; name a STUDY or --store")
    if states["FAIL"]:
        raise typer.Exit(1)


def _finding_text(finding: Finding) -> str:
    lines = _wrapped(finding.message)
    if finding.remedy:
        lines += _wrapped(finding.remedy)
    lines[0] = f"{finding.state:<5} {finding.check:<18} {lines[0].lstrip()}"
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    # Commands to type stay on one line.
    whole = re.sub(r"`[^`]*`", lambda typed: typed[0].replace(" ", "\0"), text)
    indent = " " * INDENT
    lines = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]
