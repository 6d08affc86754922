"""The page as a file beside the results."""

from __future__ import annotations

from pathlib import Path

from curvflow.flows.outputs import replace_file
from curvflow.flows.report.asked import Asked
from curvflow.flows.report.gather import gather, open_basis
from curvflow.flows.report.render import render


def write_report(asked: Asked, output: Path | None = None) -> tuple[Path, list[str]]:
    """Write the page of a study.

    Args:
        asked: which study, and how.
        output: the file; by default `report.html` in the study's folder of results, of
            an earlier run `report-run-N.html`.

    Returns:
        The file, and a line for each result that could not be read.

    Raises:
        RequestError: the study or the store cannot be read, or has no such run.
        StoreError: the file cannot be written.
    """
    basis = open_basis(asked)
    content = gather(basis)
    file = output or basis.opened.folder / default_name(asked.run)
    replace_file(file, render(content).encode())
    return file, list(content.unreadable)


def default_name(run: int | None) -> str:
    """Return the name of the file, by the run that it tells of."""
    return "report.html" if run is None else f"report-run-{run}.html"
