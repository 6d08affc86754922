"""Errors of trace estimates, and coverage of intervals, where the truth is known.

    python -m benchmarks.intervals

Symmetric matrices of 60 known eigenvalues in an oblique basis, 400 repetitions of each
method. First the root mean square error of the trace at an equal number of products.
Then how many of 400 intervals of each method hold the trace, 95 % stated, by the spread
of its draws alone and as stated here, and how wide these are beside those: the least,
the mean and the most of cases of four spectra, signs and Gaussian vectors, and numbers
of them. Last the mass of few eigenvalues of
65, by exact weights of 20 Gaussian vectors, in 4,000 repetitions: intervals of the mean
plus and minus Student's t times its error, and those of `probe.spectrum`. Prints tables
in Markdown; all numbers are drawn by fixed seeds.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.tasks.numerics import BatchedDense, estimate, stream
from curvflow.tasks.numerics.estimators.sketched_traces import METHODS, Probed
from curvflow.tasks.numerics.krylov.ritz_spectra import Mass

SIZE, REPETITIONS, PRODUCTS = 60, 400, 24
RANKS = torch.arange(1, SIZE + 1).double()
SPECTRA = {
    "k^-1.5": RANKS**-1.5,
    "k^-0.5": RANKS**-0.5,
    "0.8^k": 0.8**RANKS,
    "even, 0.5 to 1.5": torch.linspace(0.5, 1.5, SIZE).double(),
}
COMPARED = ("k^-1.5", "even, 0.5 to 1.5")
# Vectors that PRODUCTS products take.
VECTORS = {"hutchinson": 24, "hutch++": 16, "xtrace": 12}
LAWS = ("rademacher", "gaussian")
COUNTS = {"hutchinson": (4, 8, 16), "hutch++": (8, 16), "xtrace": (8, 12, 16)}
DIMENSIONS, RUNS, DRAWINGS = 65, 20, 4000


def matrix(name: str) -> Tensor:
    """Return the matrix of some eigenvalues, in the oblique basis."""
    generator = stream(0, "benchmarks.intervals")
    drawn = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
    basis_DD = torch.linalg.qr(drawn).Q
    return basis_DD @ torch.diag(SPECTRA[name]) @ basis_DD.T


def probed(name: str, method: str, law: str, vectors: int) -> Probed:
    """Return a method with its vectors multiplied, one model for each repetition."""
    matrix_MDD = matrix(name).expand(REPETITIONS, -1, -1)
    estimator = METHODS[method](
        BatchedDense(matrix_MDD),
        range(REPETITIONS),
        sizes=[SIZE],
        distribution=law,
        block=vectors,
    )
    estimator.grow(vectors)
    return estimator


def deviation(name: str, method: str) -> tuple[float, float]:
    """Return the root mean square error and its standard error.

    Vectors are Gaussian for `xtrace`, else signs.

    Raises:
        ArithmeticError: a method took another number of products.
    """
    law = "gaussian" if method == "xtrace" else "rademacher"
    estimator = probed(name, method, law, VECTORS[method])
    if estimator.num_matvecs != PRODUCTS:
        raise ArithmeticError(f"{method} took {estimator.num_matvecs} products")
    means_M = estimator.draws().sum(1).mean(1)
    squares = estimate((means_M - SPECTRA[name].sum()).square())
    error = float(squares.mean.sqrt())
    return error, float(squares.sem) / (2 * error)


def covered(method: str, name: str, law: str, vectors: int) -> tuple[float, ...]:
    """Return shares of intervals that hold: by spread alone, as stated; and widths."""
    estimator = probed(name, method, law, vectors)
    draws_MLS = estimator.draws()
    whole, error = estimate(draws_MLS.sum(1)), estimator.error(draws_MLS)
    apart_M = (whole.mean - SPECTRA[name].sum()).abs()
    halves = [
        torch.as_tensor(stdtrit(freedom.numpy(), 0.975)) * sem
        for sem, freedom in ((whole.sem, whole.freedom), error)
    ]
    alone, stated = ((apart_M <= half).double().mean().item() for half in halves)
    return alone, stated, float(halves[1].mean() / halves[0].mean())


def masses(count: int) -> tuple[float, float]:
    """Return shares of intervals of a mass that hold: of the mean, and as stated."""
    generator = stream(count, "benchmarks.intervals")
    shape = (DRAWINGS, RUNS, DIMENSIONS)
    squares: Tensor = torch.randn(shape, generator=generator).double().square()
    draws_MS = squares[:, :, :count].sum(2) / squares.sum(2)
    whole, truth = estimate(draws_MS), count / DIMENSIONS
    half_M = float(stdtrit(RUNS - 1, 0.975)) * whole.sem
    plain = ((whole.mean - truth).abs() <= half_M).double().mean().item()
    low_M, high_M = Mass(whole, draws_MS, draws_MS).interval()
    stated = ((low_M <= truth) & (truth <= high_M)).double().mean().item()
    return plain, stated


def share(held: float, count: int) -> str:
    """Return a share in percent, with the standard error of a binomial share."""
    return f"{100 * held:.1f} ± {100 * math.sqrt(held * (1 - held) / count):.1f} %"


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    print(f"| eigenvalues, trace | {' | '.join(VECTORS)} |")
    print("|---" * (len(VECTORS) + 1) + "|")
    for name in COMPARED:
        found = [deviation(name, method) for method in VECTORS]
        errors = " | ".join(f"{error:.2g} ± {sem:.1g}" for error, sem in found)
        print(f"| {name}, {SPECTRA[name].sum():.3g} | {errors} |")
    print(f"\n| of {REPETITIONS} hold, % | cases | spread alone | as stated | width |")
    print("|---|---|---|---|---|")
    for method, counts in COUNTS.items():
        cases = [covered(method, *case) for case in product(SPECTRA, LAWS, counts)]
        *shares, widths = zip(*cases, strict=True)
        spans = [
            f"{100 * min(held):.1f}, {100 * sum(held) / len(held):.1f}, "
            f"{100 * max(held):.1f}"
            for held in shares
        ]
        width = f"{min(widths):.2f} to {max(widths):.2f}"
        print(f"| {method} | {len(cases)} | {' | '.join(spans)} | {width} |")
    print(f"\n| eigenvalues of {DIMENSIONS} | mean ± t sem | stated |\n|---|---|---|")
    for count in (1, 2, 4):
        plain, stated = (share(held, DRAWINGS) for held in masses(count))
        print(f"| {count} | {plain} | {stated} |")


if __name__ == "__main__":
    main()
