"""Factors of 40 checkpoints of 10 seeds as one tile, and 10 trainings by K-FAC.

    python -m benchmarks.kronecker_tiles [--turns N]

Each against the same one by one: of 400 checkpoints some, evenly over the tile, counted
up; of trainings all. Both must return equal numbers. CPU seconds of one process, one
thread, after an untimed call of each, the median of some turns, in turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.probes_batched import SMALL, compute, data_of, member, points, seconds
from curvflow.schemas.nodes import Data, Member, Outcome

ALONE, TRAININGS, EPOCHS = 20, 10, 40
FACTORS: dict[str, dict[str, Any]] = {
    "factors, type-2": {},
    "factors, mc": {"fisher_type": "mc"},
    "factors, ekfac": {"structure": "ekfac"},
}
RULES: dict[str, dict[str, Any]] = {
    "training, kfac": {"rule": "kfac"},
    "training, gauss_newton": {"rule": "gauss_newton", "cg_steps": 20},
}
# Eigenvectors have signs of their own.
COMPARED = ("trace", "frobenius", "weights", "train_loss")


def trainings(data: Data, hidden: list[int], rule: dict[str, Any]) -> list[Member]:
    """Return trainings of several seeds, a step an epoch."""
    settings = {
        "model": {"kind": "mlp", "hidden": hidden, "activation": "tanh"},
        "rule": rule,
        "epochs": EPOCHS,
        "record_every": EPOCHS,
        "dtype": "float64",
    }
    return [
        member("train", {**settings, "seed": seed}, data=data)
        for seed in range(TRAININGS)
    ]


def check(alone: Sequence[Outcome], together: Sequence[Outcome]) -> None:
    """Hold the numbers of both to each other."""
    for one, other in zip(alone, together, strict=True):
        for name in COMPARED:
            if name in one.arrays:
                np.testing.assert_allclose(
                    one.arrays[name], other.arrays[name], rtol=1e-4, atol=1e-6
                )


def report(name: str, what: str, kind: str, members: list[Member], turns: int) -> None:
    """Measure a tile and its members one by one, and print the row."""
    every = max(1, len(members) // ALONE)
    some = members[::every]

    def one_by_one() -> list[Outcome]:
        return [compute(kind, [one])[0] for one in some]

    together = partial(compute, kind, members)
    check(one_by_one(), together()[::every])
    pairs = [(seconds(one_by_one), seconds(together)) for _ in range(turns)]
    apart, tile = (statistics.median(times) for times in zip(*pairs, strict=True))
    apart *= len(members) / len(some)
    print(
        f"| {name} | {what} | {apart:.3g} s | {tile:.3g} s | {apart / tile:.1f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    turns: int = parser.parse_args().turns
    torch.set_num_threads(1)
    print("| network | what | one by one | one tile | ratio |\n|---|---|---|---|---|")
    for name, (kind, params, hidden) in SMALL.items():
        data = data_of(kind, params)
        weights = points(data, hidden)
        for what, settings in FACTORS.items():
            members = [
                member("probe.factors", settings, weights=w, data=data) for w in weights
            ]
            report(name, what, "probe.factors", members, turns)
        for what, rule in RULES.items():
            report(name, what, "train", trainings(data, hidden, rule), turns)


if __name__ == "__main__":
    main()
