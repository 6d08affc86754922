"""`curvflow runs`: who is at work on a store."""

from __future__ import annotations

from typing import Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    opened,
    print_json,
)


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List the runs at work on the study's store, of any study in it."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.alive import at_work

    rows = at_work(opened(study, store, profile, overrides).store)
    if as_json:
        print_json(rows)
    else:
        typer.echo("\n".join(map(_line, rows)) or "no run is at work")


def _line(row: dict[str, Any]) -> str:
    name = f"{row['study']} run {row['run']}"
    held = f"{row['claimed']} nodes in work"
    where = f"process {row['pid']} on {row['host']}"
    return f"{name:<24}  {row['state']:<8}  {row['started']}  {held:<18}  {where}"
