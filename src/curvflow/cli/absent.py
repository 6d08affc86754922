"""Say on stderr that results are shown without values, and how these come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from curvflow.schemas.words import counted

if TYPE_CHECKING:
    from curvflow.flows.results.results import Results


def tell_absent(
    results: Results, stage: str, where: Mapping[str, str] | None = None
) -> None:
    """Tell of results that failed, are to come, or whose arrays collection removed.

    Args:
        results: of the study.
        stage: name of the stage.
        where: dimension to label; all nodes by default.
    """
    view = results.view(stage).where(where or {})
    counts = view.counts()
    if number := counts["removed"]:
        typer.echo(
            f"{stage}: collection has removed the arrays of "
            f"{counted(number, 'result')}. "
            f"Run the study with --revive {stage} to compute them again.",
            err=True,
        )
    nodes = counted(len(view.points), "node")
    if number := counts["failed"]:
        typer.echo(
            f"{stage}: failed at {number} of {nodes}. "
            f"`curvflow why STUDY {stage}` says why.",
            err=True,
        )
    if (number := counts["missing"]) and results.run is None:
        typer.echo(
            f"{stage}: no result yet at {number} of {nodes}. Run the study.", err=True
        )
