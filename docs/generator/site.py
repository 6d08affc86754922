"""All pages that are made, by their places in the documentation."""

from __future__ import annotations

from typing import Any

import curvflow
from curvflow.tasks import numerics
from docs.generator import commands, kinds, python


def pages() -> dict[str, str]:
    """Return the pages by path."""
    made = {f"{kinds.FOLDER}/index.md": kinds.overview()}
    for group in kinds.grouped().values():
        made |= {kinds.path_of(kind): kinds.page(kind) for kind in group}
    made["reference/commands.md"] = commands.page()
    made["reference/python.md"] = python.page(curvflow, "Python: studies")
    made["reference/numerics.md"] = python.page(numerics, "Python: numerics")
    return made


def kind_nav() -> list[Any]:
    """Return the navigation of the kinds: the overview, and a part for each group."""
    parts = [
        {group: [{kind.name: kinds.path_of(kind)} for kind in those]}
        for group, those in kinds.grouped().items()
    ]
    return [f"{kinds.FOLDER}/index.md", *parts]
