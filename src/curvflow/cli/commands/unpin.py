"""`curvflow unpin`: let collection have a run's results again."""

from __future__ import annotations

from typing import Annotated

import typer

from curvflow.cli.arguments import StoreUrl, StudyPath, existing, opened


def command(
    study: StudyPath,
    name: Annotated[str, typer.Argument(help="of the pin")],
    *,
    store: StoreUrl = None,
) -> None:
    """Remove a pin.

    Nothing else changes until the next gc.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.pins import unpin_run

    unpin_run(existing(opened(study, store, None, None).store), name)
    typer.echo(f"{name} is unpinned")
