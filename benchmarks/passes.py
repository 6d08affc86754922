"""Time of Hessian products by the bytes that a pass of one network may take.

    python -m benchmarks.passes [--turns N]

Sixteen columns for each of two networks of a kind, in the order of a probe and in
single precision, with passes of 2^25, 2^27 (what studies take) and 2^29 bytes of
activations: few rows at a time leave the time to the calls around the kernels, and to
sums of vectors of all parameters. CPU seconds of one thread, each the least of some
turns, in turns; products must agree. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.own_module import drawn, least, models
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.tasks.machine import threads
from curvflow.tasks.networks import problems
from curvflow.tasks.numerics import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import models_together

MODELS, COLUMNS, POWERS, STUDIES = 2, 16, (25, 27, 29), 27


def images(samples: int, *shape: int) -> Data:
    """Return drawn inputs of some shape, and ten classes."""
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(samples, *shape)).astype(np.float32)
    arrays = dataset(inputs, draws.integers(0, 10, samples))
    return Data("data", "data.array", {}, arrays, "drawn")


NETWORKS: dict[str, tuple[dict[str, Any], Callable[[], Data]]] = {
    "MLP 2-64-64-10, 4,000 samples": (
        {"kind": "mlp", "hidden": [64, 64]},
        partial(images, 4000, 2),
    ),
    "MLP 784-32-10, 2,000 samples": (
        {"kind": "mlp", "hidden": [32]},
        partial(images, 2000, 784),
    ),
    "MLP 784-256-256-10, 1,000 samples": (
        {"kind": "mlp", "hidden": [256, 256]},
        partial(images, 1000, 784),
    ),
    "LeNet-5, 256 samples": ({"kind": "lenet5"}, partial(images, 256, 1, 28, 28)),
    "ResNet of two blocks, 128 samples": (
        {"kind": "resnet", "widths": [8, 16], "blocks": [1, 1]},
        partial(images, 128, 3, 16, 16),
    ),
    "LSTM of 32 units, 256 rows of 16 tokens": (
        {"kind": "lstm", "vocabulary": 32, "hidden": 32},
        drawn,
    ),
    "transformer of two blocks, width 16, the same": (models(16)["transformer"], drawn),
    "transformer of two blocks, width 64, the same": (models(64)["transformer"], drawn),
}


def measured(
    model: dict[str, Any], data: Data, turns: int
) -> Iterator[tuple[int, float]]:
    """Yield rows of a pass and CPU seconds for each size of passes."""
    problem = problems.pose(parse_model(model), "auto", data)
    torch.manual_seed(0)
    size = problem.network.num_parameters
    statistics_S = problem.network.first_statistics().float()
    weights_MD, columns = torch.randn(MODELS, size), torch.randn(MODELS, size, COLUMNS)
    samples = problems.load_samples(problem, [data], "", "cpu", torch.float32)
    rows, products = {}, {}
    for power in POWERS:
        with patch.object(problems, "PASS_BYTES", 1 << power):
            rows[power] = problem.rows_per_pass(COLUMNS)
            most = problem.models_per_pass(samples.count, COLUMNS)
        products[power] = BatchedHessian(
            problem.losses,
            0.1 * weights_MD,
            samples.inputs,
            samples.targets,
            fixed_MS=statistics_S.expand(MODELS, -1),
            batch_size=rows[power],
            models_per_pass=models_together(most, has_plain_path=False),
        )

    def product(power: int) -> Tensor:
        return products[power] @ columns

    found = [product(power) for power in POWERS]
    for other in found[1:]:
        difference = (other - found[0]).norm() / found[0].norm()
        assert difference < 1e-3, difference
    calls: dict[str, Callable[[], Any]] = {
        str(power): partial(product, power) for power in POWERS
    }
    taken = least(calls, turns)
    for power in POWERS:
        yield min(rows[power], samples.count), taken[str(power)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    heads = [f"2^{power} bytes: rows, time" for power in POWERS]
    print(f"| network | {' | '.join(heads)} | 2^{POWERS[0]} / 2^{STUDIES} |")
    print(f"|{(len(heads) + 2) * '---|'}")
    with threads(1):
        for name, (model, data) in NETWORKS.items():
            found = list(measured(model, data(), given.turns))
            cells = [f"{rows}, {seconds:.3g} s" for rows, seconds in found]
            seconds = dict(zip(POWERS, (each[1] for each in found), strict=True))
            ratio = seconds[POWERS[0]] / seconds[STUDIES]
            print(f"| {name} | {' | '.join(cells)} | {ratio:.1f} x |", flush=True)


if __name__ == "__main__":
    main()
