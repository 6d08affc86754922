"""`curvflow init`: a study to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curvflow.cli.arguments import echo
from curvflow.errors import RequestError

STUDY = "study.yaml"


def command(
    folder: Annotated[Path, typer.Argument(help="made if it is missing")] = Path(),
) -> None:
    """Write a study to start from."""
    path = folder / STUDY
    if path.exists():
        raise RequestError(
            f"{path}: expected a name that is free, got a file that exists. Name "
            "another folder."
        )
    # Loaded here so that other commands start at once.
    from importlib.resources import files

    text = (files("curvflow.cli") / "templates" / STUDY).read_text(encoding="utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"{path}: expected a file that can be written, got {error.strerror}. "
            "Name another folder."
        ) from error
    echo(f"{path}\nnext: curvflow run {path}")
