"""The study with redun: lazy tasks; the grid is an argument of the outermost."""
# mypy: ignore-errors
# Runs where redun is installed, which is not where the types are checked.

from __future__ import annotations

import nodes
import numpy as np
from grid import points
from redun import File, task

redun_namespace = "peers"


@task()
def first(rate: float, seed: int, repeat: int):
    return np.array(nodes.first(rate, seed, repeat))


@task()
def second(values):
    return np.array(nodes.second(values))


@task()
def main(grid: File = File("grid.json")):  # noqa: B008 # as redun declares files
    return [second(first(*point)) for point in points(grid.read())]
