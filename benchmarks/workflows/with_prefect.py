"""The study with Prefect: mapped tasks whose results are cached by their inputs."""
# mypy: ignore-errors
# Runs where Prefect is installed, which is not where the types are checked.

from __future__ import annotations

from pathlib import Path

import nodes
import numpy as np
from grid import points
from prefect import flow, task
from prefect.cache_policies import INPUTS


@task(cache_policy=INPUTS, persist_result=True)
def first(rate, seed, repeat):
    return np.array(nodes.first(rate, seed, repeat))


@task(cache_policy=INPUTS, persist_result=True)
def second(values):
    return np.array(nodes.second(values))


@flow
def study():
    done = second.map(
        first.map(*zip(*points(Path("grid.json").read_text()), strict=True))
    )
    done.result()


if __name__ == "__main__":
    study()
