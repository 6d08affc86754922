"""Condition numbers of the kernel matrices of `logdet.py` behind a leading part.

    python -m benchmarks.kernel_spectrum [--points N] [--columns N ...]

By theory, no matrix is made: eigenvalues of the integral operator of the squared
exponential kernel on the unit cube of six dimensions, products of six of one dimension,
times the number of points, plus the noise. The leading part is the best possible of so
many columns. Prints a table in Markdown: how many eigenvalues exceed the noise, the
condition number of what is left behind each number of columns, and the steps, 2 √κ,
that a quadrature takes.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.polynomial.legendre import leggauss

from benchmarks.logdet import NOISE, PRINTED, Plan

DIMENSION, NODES = 6, 80


def one_dimension(length_scale: float) -> np.ndarray:
    """Return the eigenvalues of the integral operator on [0, 1], descending."""
    nodes, weights = leggauss(NODES)
    apart = (nodes[:, None] - nodes[None]) / 2 / length_scale
    root = np.sqrt(weights / 2)
    values = np.linalg.eigvalsh(root[:, None] * np.exp(-(apart**2) / 2) * root)
    return np.clip(values[::-1], 0.0, None)


def leading(values: np.ndarray, count: int) -> np.ndarray:
    """Return the largest products of six values, descending."""
    products = np.ones(1)
    for _ in range(DIMENSION):
        products = np.sort(np.outer(products, values).ravel())[::-1][:count]
    return products


def row(length_scale: float, points: int, columns: list[int]) -> str:
    """Return a row of the table."""
    eigenvalues = points * leading(one_dimension(length_scale), points)
    above = int((eigenvalues > NOISE).sum())
    damped = eigenvalues + NOISE
    conditions = [damped[behind] / damped[-1] for behind in columns]
    cells = [f"{κ:.0e}, {2 * math.sqrt(κ):.0f} steps" for κ in conditions]
    return f"| {length_scale} | {above:,} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=Plan().points)
    parser.add_argument("--columns", type=int, nargs="+", default=[800, 1500, 3000])
    asked = parser.parse_args()
    print(f"| l | above the noise | {' | '.join(map(str, asked.columns))} |")
    print("|---" * (2 + len(asked.columns)) + "|")
    for length_scale in PRINTED:
        print(row(length_scale, asked.points, asked.columns), flush=True)


if __name__ == "__main__":
    main()
