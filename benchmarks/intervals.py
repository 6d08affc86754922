"""Errors of trace estimates, and coverage of intervals, where the truth is known.

    python -m benchmarks.intervals

Symmetric matrices of 60 known eigenvalues in an oblique basis, 400 repetitions of each
method. First the root mean square error of the trace at an equal number of products.
Then how many of 400 intervals of each method hold the trace, 95 % stated, by the spread
of its draws alone and as stated here, and how wide these are beside those: the least,
the mean and the most of cases of four spectra, signs and Gaussian vectors, and numbers
of them. Then the mass of few eigenvalues of
65, by exact weights of 20 Gaussian vectors, in 4,000 repetitions: intervals of the mean
plus and minus Student's t times its error, and those of `probe.spectrum`. Then moments
of the orders 1 to 6 by 5 to 30 vectors, of spectra with and without outliers: the least
covered order of Student's intervals, and of those stated. Last the variance of all of
100 gradients by that of few: with the spread of distances as it is, and as stated, in
how many cases there are enough, and of these.
Prints tables in Markdown; all numbers are drawn by fixed seeds.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.tasks.numerics import (
    BatchedDense,
    estimate,
    positive_interval,
    stream,
    student_interval,
)
from curvflow.tasks.numerics.derivatives.variances import spread_of_few
from curvflow.tasks.numerics.estimators.moments import (
    MomentDraws,
    moment_draws,
    moment_intervals,
    ritz_moments,
)
from curvflow.tasks.numerics.estimators.sketched_traces import METHODS, Probed
from curvflow.tasks.numerics.krylov.ritz_spectra import Mass
from curvflow.tasks.probes.variances.gradient_variance import ENOUGH

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
ORDERS = 6
# Eigenvalues whose moments are taken, with a support.
OUTLYING = {
    "0 to 1, and 40": (torch.cat([torch.linspace(0, 1, 59), torch.tensor([40.0])])),
    "0 to 1, and 9, 12, 40": torch.cat(
        [torch.linspace(0, 1, 57), torch.tensor([9.0, 12.0, 40.0])]
    ),
    "-40, and -1 to 0": (torch.cat([torch.tensor([-40.0]), torch.linspace(-1, 0, 59)])),
    "1e-6 to 1": 10 ** torch.linspace(-6, 0, 60),
    "even, 0.5 to 1.5": torch.linspace(0.5, 1.5, 60),
}
GRADIENTS, FEW = 100, (2, 3, 4, 6, 10, 20, 50)
# Of the lengths of gradients: all 1, exponential, and log-normal of deviation 1.
TAILS = ("Gaussian", "exponential", "long-tailed")


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


def moments_covered(name: str, basis: str, law: str, vectors: int) -> tuple[float, ...]:
    """Return the least share of an order that holds: of Student's, and as stated."""
    values_D = OUTLYING[name].double()
    support_2 = torch.stack([values_D.min(), values_D.max()]) + torch.tensor(
        [-0.1, 0.1]
    )
    is_chebyshev, size = basis == "chebyshev", len(values_D)
    generator = stream(0, "benchmarks.intervals")
    drawn = torch.randn(size, size, generator=generator, dtype=torch.float64)
    basis_DD = torch.linalg.qr(drawn).Q
    matrix_DD = basis_DD @ torch.diag(values_D) @ basis_DD.T
    found = moment_draws(
        BatchedDense(matrix_DD.expand(REPETITIONS, -1, -1)),
        range(REPETITIONS),
        num_moments=ORDERS,
        num_probes=vectors,
        distribution=law,
        block=16,
        support_M2=support_2.expand(REPETITIONS, -1) if is_chebyshev else None,
    )
    truth_K = ritz_moments(
        values_D[None],
        torch.full((1, size), 1 / size).double(),
        num_moments=ORDERS,
        support_2=support_2 if is_chebyshev else None,
    ).draws[0]
    held = torch.zeros(2, ORDERS + 1)
    for draws, spreads, cubes in zip(
        found.draws, found.spreads, found.cubes, strict=True
    ):
        sem, *stated = moment_intervals(
            MomentDraws(draws, spreads, found.freedom, cubes),
            size=size,
            basis=basis,
            is_positive=bool(values_D.min() >= 0),
        )
        plain = student_interval(draws.mean(0), sem, vectors - 1)
        for number, (low, high) in enumerate((plain, stated)):
            held[number] += (low - 1e-9 <= truth_K) & (truth_K <= high + 1e-9)
    return tuple((held[:, 1:] / REPETITIONS).amin(1).tolist())


def long_tailed(law: str, generator: torch.Generator) -> Tensor:
    """Return what the lengths of gradients are multiplied by, (M, N, 1)."""
    shape = (REPETITIONS, GRADIENTS, 1)
    if law == "Gaussian":
        return torch.ones(shape).double()
    if law == "long-tailed":
        return torch.randn(shape, generator=generator).double().exp()
    return -torch.rand(shape, generator=generator).double().log()


def variances_covered(law: str, count: int) -> tuple[float, ...]:
    """Return shares of intervals that hold the variance of all gradients.

    Args:
        law: of the gradients of 20 dimensions: Gaussian, or with lengths that spread.
        count: gradients taken.

    Returns:
        By the spread of their distances, and as stated; the share of cases in which
        there are enough of them, and how many intervals of these hold, NaN of none.
    """
    generator = stream(count, "benchmarks.intervals")
    gradients_MND = torch.randn(
        (REPETITIONS, GRADIENTS, 20), generator=generator
    ).double() * (torch.arange(1, 21).double() ** -0.5)
    gradients_MND *= long_tailed(law, generator)
    truth_M = gradients_MND.var(1).sum(1)
    few_MnD = gradients_MND[:, :count]
    distances_Mn = (few_MnD - few_MnD.mean(1, keepdim=True)).square().sum(2)
    rest, variance_M = 1 / count - 1 / GRADIENTS, few_MnD.var(1).sum(1)
    sem_M = (rest * distances_Mn.var(1)).sqrt()
    plain = positive_interval(variance_M, sem_M, count - 1)
    stated = spread_of_few(distances_Mn, GRADIENTS)
    held_M, stated_M = (
        ((low_M <= truth_M) & (truth_M <= high_M)).double()
        for low_M, high_M in (plain, (stated.low, stated.high))
    )
    enough_M = stated.effective >= ENOUGH
    shares = (held_M, stated_M, enough_M.double(), stated_M[enough_M])
    return tuple(share.mean().item() for share in shares)


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

    print("\n| moments of | basis | vectors | Student's | as stated |")
    print("|---|---|---|---|---|")
    for name, basis in product(OUTLYING, ("power", "chebyshev")):
        for vectors in (5, 10, 30):
            pairs = [moments_covered(name, basis, law, vectors) for law in LAWS]
            plain, stated = (min(both) for both in zip(*pairs, strict=True))
            held = f"{plain:.1%} | {stated:.1%}"
            print(f"| {name} | {basis} | {vectors} | {held} |")
    print(
        "\n| gradients, of 100 | law | spread alone | as stated | enough | of these |"
    )
    print("|---|---|---|---|---|---|")
    for law, count in product(TAILS, FEW):
        columns = " | ".join(f"{part:.1%}" for part in variances_covered(law, count))
        print(f"| {count} | {law} | {columns} |")


if __name__ == "__main__":
    main()
