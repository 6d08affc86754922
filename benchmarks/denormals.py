"""What products cost once weights have decayed below the smallest normal number.

Weight decay shrinks a unit that no gradient reaches by the same factor at every step,
down to denormal numbers, which processors may multiply far more slowly. A batch of ReLU
networks is timed with such numbers counted as zero, as curvflow computes, and without:
Hessian products, and those of a single layer, activations times the weights between
hidden layers; for ordinary weights and once some units have decayed. Medians of CPU
seconds of one thread, in turns taken alternately in one process, each after an untimed
call; prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.tasks.machine import threads
from curvflow.tasks.networks.problems import Problem, load_samples, pose
from curvflow.tasks.numerics import BatchedHessian
from curvflow.tasks.numerics.streams import stream

MODELS, SAMPLES, COLUMNS = 4, 50, 4
INPUTS, CLASSES = 64, 10
HIDDEN = ((64, 64), (256, 256))
DTYPES = (torch.float32, torch.float64)
FACTOR = 0.9  # by which a step of weight decay shrinks
DECAYED = {"ordinary": 0.0, "half of the units decayed": 0.5, "all decayed": 1.0}


def posed(hidden: tuple[int, ...]) -> tuple[Problem, Data]:
    """Return a problem on drawn inputs, and the data it is posed on."""
    x = torch.rand(SAMPLES, INPUTS, generator=stream(0, "inputs")).numpy()
    arrays = dataset(x, np.arange(SAMPLES) % CLASSES, x[:0], np.zeros(0, np.int64))
    data = Data("data", "data.array", {}, arrays, "drawn")
    model: Any = parse_model(
        {"kind": "mlp", "hidden": list(hidden), "activation": "relu"}
    )
    return pose(model, "cross_entropy", data), data


def decayed(problem: Problem, weights_MD: Tensor, share: float) -> Tensor:
    """Return the weights after some units of each hidden layer have decayed.

    Args:
        problem: whose weights they are, of dense layers.
        weights_MD: ordinary ones.
        share: of the units; if all have decayed, every weight has.

    Returns:
        Weights of which those into and out of such units are denormal, (M, D).
    """
    shapes = problem.network.layout.shapes  # weight (out, in) and bias, layer by layer
    kept = []
    for number, shape in enumerate(shapes):
        kept_T = torch.ones(shape, dtype=torch.bool)
        if number < len(shapes) - 2 or share == 1:
            kept_T[: round(share * shape[0])] = False
        if number > 1 and len(shape) == 2:
            kept_T[:, : round(share * shape[1])] = False
        kept.append(kept_T.flatten())
    shrinking_MD = weights_MD.clone()
    while shrinking_MD.abs().max() >= torch.finfo(weights_MD.dtype).tiny:
        shrinking_MD *= FACTOR
    return torch.where(torch.cat(kept), weights_MD, shrinking_MD)


@contextmanager
def plainly() -> Iterator[None]:
    """Compute as PyTorch does by itself: on one thread here, but not flushing."""
    with threads(1):
        torch.set_flush_denormal(False)
        yield


MODES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "flushed": lambda: threads(1),
    "not flushed": plainly,
}


def hessian_product(
    problem: Problem, data: Data, weights_MD: Tensor
) -> Callable[[], Tensor]:
    """Return what multiplies columns by the Hessians at some weights."""
    samples = load_samples(problem, [data], "", "cpu", weights_MD.dtype)
    operator = BatchedHessian(
        problem.losses, weights_MD, samples.inputs, samples.targets
    )
    shape = (*weights_MD.shape, COLUMNS)
    columns = torch.randn(shape, generator=stream(0, "columns"), dtype=weights_MD.dtype)
    return lambda: operator @ columns


def layer_product(
    problem: Problem, data: Data, weights_MD: Tensor
) -> Callable[[], Tensor]:
    """Return what multiplies activations by the weights between hidden layers."""
    weights_MOI = problem.network.layout.unflatten(weights_MD)[2]
    shape = (len(weights_MD), len(data["inputs"]), weights_MOI.shape[2])
    active_MNI = torch.rand(
        shape, generator=stream(0, "active"), dtype=weights_MD.dtype
    )
    return lambda: active_MNI @ weights_MOI.mT


PRODUCTS = {"Hessian": hessian_product, "layer": layer_product}


def medians(
    what: str, hidden: tuple[int, ...], dtype: torch.dtype, turns: int
) -> dict[tuple[str, str], float]:
    """Return median seconds of a product, for each kind of weights in each mode."""
    problem, data = posed(hidden)
    shape = (MODELS, problem.network.num_parameters)
    weights_MD = torch.randn(shape, generator=stream(0, "weights"), dtype=dtype)
    weights_MD /= hidden[0] ** 0.5
    with plainly():
        products = {
            name: PRODUCTS[what](problem, data, decayed(problem, weights_MD, share))
            for name, share in DECAYED.items()
        }
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns):
        for name, call in products.items():
            for mode in sorted(MODES, reverse=turn % 2 > 0):
                with MODES[mode]():
                    call()
                    start = time.process_time()
                    call()
                    took = time.process_time() - start
                found.setdefault((name, mode), []).append(took)
    return {case: statistics.median(times) for case, times in found.items()}


def rows(
    what: str, hidden: tuple[int, ...], dtype: torch.dtype, turns: int
) -> Iterator[str]:
    """Measure one product of one network, and tell the rows of the table."""
    network = "-".join(map(str, (INPUTS, *hidden, CLASSES)))
    found = medians(what, hidden, dtype, turns)
    ordinary = found["ordinary", "flushed"]
    for name in DECAYED:
        flushed, not_flushed = (found[name, mode] for mode in MODES)
        cells = (
            what,
            network,
            str(dtype).removeprefix("torch."),
            name,
            f"{1e3 * flushed:.3g} ms",
            f"{1e3 * not_flushed:.3g} ms",
            f"{not_flushed / flushed:.3g} x",
            f"{not_flushed / ordinary:.3g} x",
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    if not torch.set_flush_denormal(False):
        print("This processor cannot flush denormal numbers.")
        return
    print(
        f"{MODELS} ReLU networks, {SAMPLES} samples, {COLUMNS} columns of Hessians; "
        f"medians of {turns} turns\n\n"
        "| product | network | numbers | weights | flushed | not flushed |"
        " by flushed | by ordinary, flushed |\n|---|---|---|---|---|---|---|---|"
    )
    for what, hidden, dtype in product(PRODUCTS, HIDDEN, DTYPES):
        for row in rows(what, hidden, dtype, turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
