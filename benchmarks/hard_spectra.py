"""Traces of functions of known spectra that a few steps do not resolve.

    python -m benchmarks.hard_spectra

Matrices of given eigenvalues, equally spaced in their logarithm: an effective dimension
of 600, and log-determinants of 400. Ten runs of 100 steps, all else as by default.
Prints a table in Markdown: the truth, the value with the error of the random vectors
alone, the interval, and whether the probe calls it converged. Runs on earlier versions
too, whose probes have no intervals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import curvflow

ALPHA = 1e-4


def eigenvalues(count: int, low: float, high: float) -> list[float]:
    """Return eigenvalues by equal factors."""
    return [float(value) for value in np.geomspace(low, high, count)]


CASES: dict[str, tuple[list[float], str, dict[str, Any]]] = {
    "effective dimension, 600 from 1e-6 to 1e2, α = 1e-4": (
        eigenvalues(600, 1e-6, 1e2),
        "effective_dimension",
        {"use": "probe.effective_dimension", "prior_precision": [ALPHA]},
    ),
    "log-determinant, 400 from 1e-6 to 1e2": (
        eigenvalues(400, 1e-6, 1e2),
        "logdet",
        {"use": "probe.logdet", "method": "slq"},
    ),
    "log-determinant, 400 from 1e-12 to 1": (
        eigenvalues(400, 1e-12, 1.0),
        "logdet",
        {"use": "probe.logdet", "method": "slq"},
    ),
}


def truth(values: list[float], name: str) -> float:
    """Return the number itself."""
    if name == "logdet":
        return sum(map(math.log, values))
    return sum(value / (value + ALPHA) for value in values)


def measured(values: list[float], probe: dict[str, Any]) -> dict[str, float]:
    """Return the variables of a probe of ten runs of 100 steps."""
    study = curvflow.Study(
        study="hard-spectra",
        stages={
            "matrix": {
                "use": "data.random_matrix",
                "ensemble": "eigenvalues",
                "eigenvalues": values,
            },
            "probe": {**probe, "matrix": "matrix", "num_runs": 10, "num_steps": 100},
        },
    )
    found = curvflow.run(study, store="memory:")["probe"]
    return {
        str(name): float(np.ravel(variable.values)[0])
        for name, variable in found.data_vars.items()
        if variable.dtype.kind in "fib"
    }


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| case | truth | value | interval | converged |\n|---|---|---|---|---|")
    for case, (values, name, probe) in CASES.items():
        found = measured(values, probe)
        sem = found.get(f"{name}_vectors", found[f"{name}_sem"])
        low, high = (found.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
        verdict = {1.0: "yes", 0.0: "no"}.get(found.get("converged", math.nan), "")
        print(
            f"| {case} | {truth(values, name):.1f} | {found[name]:.1f} ± {sem:.2g} | "
            f"{low:.1f} to {high:.1f} | {verdict} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
