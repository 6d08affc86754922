"""Log-determinants of large kernel matrices by products alone: accuracy, time, memory.

`python -m benchmarks.logdet` takes the nine matrices of Table 2.1 of Granziol (2020)
with 20,000 points; `--points` and `--length-scales` say otherwise. The estimate sees
nothing but products: a leading part, which grows until runs of `--steps` products
suffice for the rest or `--rank` products are made, and quadrature of `--runs` such
runs; `--seed` draws other vectors for both. With `--hold` the entries are computed once
and held, which needs 8 bytes times the square of the points; else they are computed
anew for each block of products.

The dense value beside it is by Cholesky, in the place of the entries. Those that
`logdet_exact.json` has are not computed again, and `--no-exact` leaves them out. Each
row has a process of its own, hence a peak of memory of its own. Times are of the
processor, start of Python included.

`--seeds N` tries the stated errors instead: N estimates of each matrix by vectors of
their own, how far they are from the dense value in standard errors, those of the
vectors alone, and how many intervals of 95 % hold it.
"""

import argparse
import json
import math
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dpotrf
from torch import Tensor

from curvflow.tasks.numerics.estimators.logdets import Controls, LogDet, by_quadrature
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.krylov.low_rank import nystrom
from curvflow.tasks.numerics.operators.algebra import LowRank, Whitened
from curvflow.tasks.numerics.operators.base import Dense, Operator, Repeated
from curvflow.tasks.numerics.operators.matrices import KernelMatrix, gershgorin_bounds
from curvflow.tasks.numerics.streams import stream

NOISE = 1e-8
EXACT = Path(__file__).with_name("logdet_exact.json")
# The least of the three columns of Table 2.1, by length scale.
PRINTED = {
    0.15: 0.0014,
    0.25: 0.0024,
    0.35: 0.0072,
    0.45: 0.0196,
    0.55: 0.0284,
    0.65: 0.0256,
    0.75: 0.00048,
    0.85: 0.0086,
    0.95: 0.0177,
}


class Plan(NamedTuple):
    """What a row is asked for."""

    points: int = 20_000
    rank: int = 3000
    columns: int = 250
    runs: int = 10
    steps: int = 150
    seed: int = 0
    hold: bool = False
    exact: bool = True


class Estimate(NamedTuple):
    """What products tell, and what it cost: seconds of the processor, gigabytes."""

    found: LogDet
    rank: int
    products: int
    seconds: float
    gigabytes: float


def kernel(points: int, length_scale: float) -> KernelMatrix:
    drawn = torch.empty(points, 6, dtype=torch.float64)
    drawn.uniform_(generator=stream(0, "data.kernel_matrix"))
    return KernelMatrix(drawn, "squared_exponential", length_scale, NOISE)


def estimated(matrix: Operator, plan: Plan) -> Estimate:
    """Divide by what Nystroem finds of the leading part, and sum log over the rest."""
    operator, size = Repeated([matrix], [0]), matrix.shape[0]
    generator = stream(plan.seed, "nystrom")
    start = torch.randn(1, size, plan.columns, generator=generator, dtype=torch.float64)
    # About 2 sqrt(kappa) steps are needed; the rest is at least the noise.
    enough = NOISE * (plan.steps / 2) ** 2
    vectors, values = nystrom(
        operator, start, num_blocks=plan.rank // plan.columns, enough=enough
    )
    by = LowRank(vectors, values, values.amin(1).clamp_min(NOISE))
    drawn = random_vectors([plan.seed], size, range(plan.runs), "rademacher")
    z = drawn / math.sqrt(size)
    ritz = lanczos(Whitened(operator, by), z, num_steps=plan.steps)
    rank = vectors.shape[2]
    share = Controls(by.share(z)[0][:, None], torch.tensor([rank / size]).double())
    # P is at most A + shift I, hence at most A (1 + shift / noise).
    floor = NOISE / (NOISE + float(by.shift))
    rest = by_quadrature(ritz, floor=floor, controls=share)
    leading = float(by.logdet())
    found = replace(
        rest,
        draws=rest.draws + leading,
        low=rest.low + leading,
        high=rest.high + leading,
    )
    return Estimate(
        found, rank, rank + int(ritz.steps.sum()), time.process_time(), peak()
    )


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def entries(matrix: KernelMatrix) -> Tensor:
    found = torch.empty(matrix.shape, dtype=torch.float64)
    for chosen, rows in matrix.blocks():
        found[chosen] = rows
    return found


def cholesky(matrix: Tensor) -> float:
    """Return the log-determinant; the matrix is overwritten."""
    factor, failed = dpotrf(matrix.numpy().T, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise ArithmeticError(f"expected a positive definite matrix, got {failed=}")
    return 2 * float(np.log(factor.diagonal()).sum())


def known() -> dict[str, float]:
    values: dict[str, float] = json.loads(EXACT.read_text()) if EXACT.exists() else {}
    return values


def exact(made: KernelMatrix, held: Tensor | None) -> float:
    """Return the dense value; entries that are held are overwritten."""
    name = f"{len(made.points)} points, length scale {made.length_scale}"
    if name not in known():
        value = cholesky(entries(made) if held is None else held)
        EXACT.write_text(json.dumps({**known(), name: value}, indent=2) + "\n")
    return known()[name]


def row(length_scale: float, plan: Plan) -> str:
    """Return a row of the table."""
    made = kernel(plan.points, length_scale)
    held = entries(made) if plan.hold else None
    got = estimated(made if held is None else Dense(held), plan)
    _, scale = gershgorin_bounds(made) or (0.0, 1.0)
    shift = plan.points * math.log(scale)
    scaled = abs(got.found.value - shift)
    cells = [
        f"{length_scale}",
        f"{got.rank} + {got.products - got.rank}",
        f"{got.found.value:.1f}",
        f"{got.found.vectors / scaled:.1e}",
        f"{got.found.quadrature / scaled:.1e}",
        "yes" if got.found.converged else "no",
        f"{got.seconds:.0f} s",
        f"{got.gigabytes:.2f} GB",
        f"{PRINTED.get(length_scale, math.nan)}",
    ]
    if plan.exact:
        value = exact(made, held)
        error = abs(got.found.value - value)
        cells += [
            f"{error / abs(value - shift):.1e}",
            f"{error / abs(value):.1e}",
            f"{time.process_time() - got.seconds:.0f} s",
        ]
    return f"| {' | '.join(cells)} |"


def deviations(length_scale: float, plan: Plan, seeds: int) -> str:
    """Return a row on the deviations of some seeds, in standard errors."""
    made = kernel(plan.points, length_scale)
    held = entries(made)
    value = cholesky(held.clone())
    found = [
        estimated(Dense(held), plan._replace(seed=plan.seed + more)).found
        for more in range(seeds)
    ]
    z = np.array([(one.value - value) / float(one.vectors) for one in found])
    cells = [f"{length_scale}", f"{seeds}", f"{z.mean():.2f}", f"{z.std(ddof=1):.2f}"]
    cells += [f"{int((abs(z) <= limit).sum())}" for limit in (1, 2, 3)]
    cells += [f"{sum(one.low <= value <= one.high for one in found)}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="See the docstring.")
    parser.add_argument("--length-scales", type=float, nargs="+", default=[*PRINTED])
    for name, default in Plan._field_defaults.items():
        if not isinstance(default, bool):
            parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--no-exact", dest="exact", action="store_false")
    parser.add_argument("--seeds", type=int, default=0)
    asked = vars(parser.parse_args())
    length_scales = asked.pop("length_scales")
    seeds = asked.pop("seeds")
    plan = Plan(**asked)
    if seeds:
        print(f"{plan}; deviations from the dense value in standard errors")
        print("| l | seeds | mean | spread | within 1 | 2 | 3 | interval |")
        for length_scale in length_scales:
            print(deviations(length_scale, plan, seeds), flush=True)
        return
    print(f"{plan}; errors, those of vectors and quadrature scaled, last plain")
    titles = "l | products | log det | vectors | quadrature | converged | time | memory"
    titles += " | printed"
    dense = " | error | of log det | Cholesky" if plan.exact else ""
    print(f"| {titles}{dense} |")
    for length_scale in length_scales:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            print(alone.submit(row, length_scale, plan).result(), flush=True)


if __name__ == "__main__":
    main()
