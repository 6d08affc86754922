"""The study with joblib.Memory: a loop over cached functions."""
# mypy: ignore-errors
# Runs where joblib is installed, which is not where the types are checked.

from __future__ import annotations

from pathlib import Path

import nodes
import numpy as np
from grid import points
from joblib import Memory

memory = Memory("cache", verbose=0)


@memory.cache
def first(rate, seed, repeat):
    return np.array(nodes.first(rate, seed, repeat))


@memory.cache
def second(values):
    return np.array(nodes.second(values))


if __name__ == "__main__":
    for point in points(Path("grid.json").read_text()):
        second(first(*point))
