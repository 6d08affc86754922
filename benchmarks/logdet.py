"""Log-determinants of a large kernel matrix by products alone: accuracy, time, memory.

`python -m benchmarks.logdet` takes 20,000 points; `--points` and `--length-scale` say
otherwise. Nothing but products is used, 1,500 of them. With `--hold` the entries are
computed once and held, which needs 8 bytes times the square of the points; else they
are computed anew for each block of products. The dense value beside the estimate is by
Cholesky, which `--no-exact` leaves out.
"""

import argparse
import math
import resource
import time
from dataclasses import replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.explicit import norm_bound
from curvflow.tasks.numerics.kernels import KernelMatrix
from curvflow.tasks.numerics.lanczos import lanczos
from curvflow.tasks.numerics.logdets import LogDet, by_quadrature
from curvflow.tasks.numerics.nystrom import nystrom
from curvflow.tasks.numerics.operators import Dense, Operator
from curvflow.tasks.numerics.repeated import Repeated
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.numerics.traces import random_vectors
from curvflow.tasks.numerics.whitened import LowRank, Whitened

NOISE, BLOCKS = 1e-8, 2


def kernel(points: int, length_scale: float) -> KernelMatrix:
    drawn = torch.empty(points, 6, dtype=torch.float64)
    drawn.uniform_(generator=stream(0, "data.kernel_matrix"))
    return KernelMatrix(drawn, "squared_exponential", length_scale, NOISE)


def estimated(matrix: Operator, rank: int, runs: int, steps: int) -> LogDet:
    """Divide by what Nystroem finds of the leading part, and sum log over the rest."""
    operator, size = Repeated([matrix], [0]), matrix.shape[0]
    start = torch.randn(
        1, size, rank // BLOCKS, generator=stream(0, "nystrom"), dtype=torch.float64
    )
    vectors, values = nystrom(operator, start, num_blocks=BLOCKS)
    by = LowRank(vectors, values, values.amin(1).clamp_min(NOISE))
    told("leading part")
    z = random_vectors([0], size, range(runs), "rademacher") / math.sqrt(size)
    rest = by_quadrature(lanczos(Whitened(operator, by), z, num_steps=steps))
    return replace(rest, draws=rest.draws + float(by.logdet()))


def told(what: str) -> None:
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    seconds, processor = time.perf_counter() - STARTED, time.process_time()
    print(
        f"{what}: {seconds:.0f} s, {processor:.0f} s of the processor, at most "
        f"{gigabytes:.2f} GB",
        flush=True,
    )


def entries(matrix: KernelMatrix) -> Tensor:
    found = torch.empty(matrix.shape, dtype=torch.float64)
    for chosen, rows in matrix.blocks():
        found[chosen] = rows
    return found


def exact(matrix: Tensor) -> float:
    """Return the log-determinant; the matrix is overwritten."""
    info = torch.empty(0, dtype=torch.int32)
    torch.linalg.cholesky_ex(matrix, out=(matrix, info))
    return 2 * float(matrix.diagonal().log().sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--length-scale", type=float, default=0.55)
    parser.add_argument("--rank", type=int, default=800)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--no-exact", action="store_true")
    asked = parser.parse_args()
    made = kernel(asked.points, asked.length_scale)
    products = asked.rank + asked.runs * asked.steps
    print(
        f"{asked.points} points, length scale {asked.length_scale}, {products} products"
    )
    held = entries(made) if asked.hold else None
    told("entries held" if asked.hold else "points")
    matrix = made if held is None else Dense(held)
    found = estimated(matrix, asked.rank, asked.runs, asked.steps)
    print(f"log det {found.value:.1f} +- {found.sem:.1f}, gap {found.gap:.2g}")
    told("estimate")
    if not asked.no_exact:
        largest = norm_bound(matrix) or 1.0
        value = exact(entries(made) if held is None else held)
        error, scaled = (
            abs(found.value - value),
            value - asked.points * math.log(largest),
        )
        print(f"Cholesky {value:.1f}")
        print(
            f"relative error {error / abs(value):.2g}, {error / abs(scaled):.2g} scaled"
        )
        told("Cholesky")


STARTED = time.perf_counter()

if __name__ == "__main__":
    main()
