"""`curvflow runs`: the runs at work on a store."""

from __future__ import annotations

from typing import Any

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
    full_address,
    open_study_store,
    print_json,
)
from curvflow.cli.text.tables import minute

COLUMNS = "{:<22}  {:<7}  {:<16}  {:>5}  {}"
HEADING = COLUMNS.format("run", "state", "began (UTC)", "nodes", "process")
WIDTH = 80


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List the runs at work on the study's store."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.graph.heartbeats import at_work

    opened = open_study_store(study, store, profile, overrides).store
    rows = at_work(opened)
    if as_json:
        print_json(rows)
    elif rows:
        echo("\n".join([HEADING, *map(_line, rows)]))
    elif opened.files.exists():
        echo("no run is at work")
    else:
        echo(f"no store at {full_address(opened)} yet")


def _line(row: dict[str, Any]) -> str:
    name = _truncated(f"{row['study']} {row['run']}", 22)
    where = f"{row['pid']} on {row['host']}"
    line = (name, row["state"], minute(row["started"]), row["claimed"], where)
    return _truncated(COLUMNS.format(*line), WIDTH)


def _truncated(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
