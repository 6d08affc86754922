"""The points of the first stage, as the systems that are programs loop over them."""

from __future__ import annotations

import json
from itertools import product


def points(text: str) -> list[tuple[float, int, int]]:
    """Return rate, seed and repeat of each point of a grid written as JSON."""
    grid = json.loads(text)
    repeats = range(grid["repeats"])
    return list(product(grid["rates"].values(), range(grid["seeds"]), repeats))
