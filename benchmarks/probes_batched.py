"""Probe 40 checkpoints of 10 seeds as one tile, and one after another.

    python -m benchmarks.probes_batched [--all] [--turns N]

The same functions compute both, as a run would call them: a tile of 400 members, and
tiles of one. Of the latter only some are taken, evenly over the tile, and counted up.
Both must return equal numbers. CPU seconds of one process, one thread, after an untimed
call of each, the middle one of three turns: one alone may pay for new memory. With
`--all` also networks large enough that a tile no longer pays.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Data, Member, Outcome, Weights
from curvflow.tasks.registry import Machine, find

SEEDS, CHECKPOINTS, ALONE = 10, 40, 20
PROBES: dict[str, dict[str, Any]] = {
    "probe.trace": {"num_probes": 16},
    "probe.eigenvalues": {"method": "lanczos", "k": 3, "tol": 1e-6},
    "probe.spectrum": {"num_runs": 1, "num_steps": 30},
}
SMALL: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "2-12-1, XOR, 4 samples": ("data.xor", {}, [12]),
    "64-16-10, digits, 50 samples": ("data.digits", {}, [16]),
}
LARGE: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "64-128-128-10, digits, 50 samples": ("data.digits", {}, [128, 128])
}
SAMPLES = 50
MACHINE = Machine()


def compute(kind: str, members: Sequence[Member]) -> list[Outcome]:
    """Compute a tile."""
    return find(kind).compute(list(members), MACHINE)


def member(kind: str, params: dict[str, Any], **inputs: Any) -> Member:
    """Return a member of a tile."""
    checked = find_kind(kind).params.model_validate(params)
    return Member(checked, {name: [node] for name, node in inputs.items()})


def data_of(kind: str, params: dict[str, Any]) -> Data:
    """Return the first samples of a data set."""
    (outcome,) = compute(kind, [member(kind, params)])
    arrays = dict(outcome.arrays)
    for name in ("inputs", "targets"):
        arrays[name] = arrays[name][:SAMPLES]
    return Data("data", kind, {}, arrays, kind)


def points(data: Data, hidden: list[int]) -> list[Weights]:
    """Train, and return every checkpoint of every seed."""
    settings = {
        "model": {"kind": "mlp", "hidden": hidden, "activation": "tanh"},
        "rule": {"rule": "sgd", "lr": 0.1},
        "dtype": "float64",
        "epochs": CHECKPOINTS - 1,
        "checkpoints": {"every": 1},
    }
    fits = compute(
        "train",
        [member("train", {**settings, "seed": s}, data=data) for s in range(SEEDS)],
    )
    return [
        Weights(
            f"fit{number}",
            "train",
            {},
            {"weights": weights, "network": fit.arrays["network"]},
            f"w{number}-{checkpoint}",
            fit.status,
            fit.reason,
        )
        for number, fit in enumerate(fits)
        for checkpoint, weights in enumerate(fit.arrays["weights"])
    ]


def seconds(function: Callable[[], Any]) -> float:
    """Return CPU seconds of a call."""
    begun = time.process_time()
    function()
    return time.process_time() - begun


def report(name: str, kind: str, members: list[Member], turns: int) -> None:
    """Measure one probe of one network, and print its row."""
    some = members[:: len(members) // ALONE][:ALONE]
    whole = compute(kind, members)
    alone = [compute(kind, [one])[0] for one in some]
    for one, other in zip(alone, whole[:: len(members) // ALONE], strict=False):
        for key, array in one.arrays.items():
            if array.dtype.kind == "f":
                np.testing.assert_allclose(
                    array, other.arrays[key], rtol=1e-4, atol=1e-6
                )
    tile = statistics.median(
        seconds(lambda: compute(kind, members)) for _ in range(turns)
    )
    single = statistics.median(
        seconds(lambda: [compute(kind, [one]) for one in some]) for _ in range(turns)
    )
    every = single * len(members) / len(some)
    print(
        f"| {name} | {kind} | {every:.3g} s | {tile:.3g} s | {every / tile:.1f} x |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="large networks too")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{CHECKPOINTS} checkpoints of {SEEDS} seeds, CPU seconds")
    print("| network | probe | one by one | one tile | ratio |\n|---|---|---|---|---|")
    for name, (kind, params, hidden) in (
        SMALL | (LARGE if options.all else {})
    ).items():
        data = data_of(kind, params)
        weights = points(data, hidden)
        for probe, settings in PROBES.items():
            members = [member(probe, settings, weights=w, data=data) for w in weights]
            report(name, probe, members, options.turns)


if __name__ == "__main__":
    main()
