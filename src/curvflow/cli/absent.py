"""Say on stderr that results are shown without values, and how these come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from curvflow.flows.results import Results


def tell_absent(
    results: Results, stage: str, where: Mapping[str, str] | None = None
) -> None:
    """Tell of results that were never computed, or whose arrays collection removed.

    Args:
        results: of the study.
        stage: name of the stage.
        where: dimension to label; all nodes by default.
    """
    view = results.view(stage).where(where or {})
    counts = view.counts()
    if number := counts["removed"]:
        told = "1 result" if number == 1 else f"{number} results"
        typer.echo(
            f"{stage}: collection has removed the arrays of {told}. "
            f"Run the study with --revive {stage} to compute them again.",
            err=True,
        )
    if (number := counts["missing"]) and results.run is None:
        nodes = "1 node" if len(view.points) == 1 else f"{len(view.points)} nodes"
        typer.echo(
            f"{stage}: no result yet at {number} of {nodes}. Run the study.", err=True
        )
