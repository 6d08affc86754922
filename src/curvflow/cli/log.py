"""`curvflow log`: the runs of a study."""

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
    """List the runs of a study, the latest last."""
    asked = opened(study, store, profile, overrides)
    runs = [r for r in asked.store.index().runs if r.study == asked.study.name]
    rows = [
        {
            "run": run.number,
            "started": run.started,
            "status": run.status,
            "seconds": round(run.seconds, 3),
            **{name: sum(per.values()) for name, per in run.counts.items()},
        }
        for run in runs
    ]
    if as_json:
        print_json(rows)
    else:
        typer.echo("\n".join(map(_line, rows)) or "no runs yet")


def _line(row: dict[str, Any]) -> str:
    counts = ("executed", "cached", "failed", "diverged")
    told = ", ".join(f"{row[name]} {name}" for name in counts if row.get(name))
    seconds = f"{row['seconds']:8.2f} s" if row["status"] != "interrupted" else " " * 10
    return f"{row['run']:>4}  {row['started']}  {row['status']:<11} {seconds}  {told}"
