"""Say on stderr that results are shown without values, and how these come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from curvflow.flows.results import Results


def tell_removed(
    results: Results, stage: str, where: Mapping[str, str] | None = None
) -> None:
    """Tell of results whose arrays collection has removed, if there are any.

    Args:
        results: of the study.
        stage: name of the stage.
        where: dimension to label; all nodes by default.
    """
    number = results.view(stage).where(where or {}).counts()["removed"]
    if number:
        told = "1 result" if number == 1 else f"{number} results"
        typer.echo(
            f"{stage}: collection has removed the arrays of {told}. "
            f"Run the study with --revive {stage} to compute them again.",
            err=True,
        )
