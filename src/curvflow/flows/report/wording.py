"""The study as it is written."""

from __future__ import annotations

from dataclasses import dataclass

from curvflow.flows.report.basis import Basis
from curvflow.schemas.study.yaml_source import to_yaml


@dataclass(frozen=True)
class Wording:
    """The study's text.

    Attributes:
        text: the study file; or the resolved study, where that is another.
        note: which of them, and what was set beside it.
    """

    text: str
    note: str


def wording(basis: Basis) -> Wording:
    """Return the text that says what the results shown were asked by.

    Args:
        basis: what the page is drawn from.

    Returns:
        The study file as it is; where a run, a profile or an override asked for
        something else, the resolved study.
    """
    asked, run = basis.asked, basis.results.run
    if run is not None and run.document != basis.opened.study.document:
        told = f"As resolved for run {run.number}; the study file has changed since."
        return Wording(to_yaml(dict(run.document)), told)
    if asked.beside:
        told = f"Resolved, with {asked.beside}."
        return Wording(to_yaml(basis.opened.study.document), told)
    return Wording(basis.text, f"{asked.file.name}, as it is written.")
