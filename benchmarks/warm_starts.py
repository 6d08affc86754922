"""Products that eigenvalues along training take, begun anew and from those before.

    python -m benchmarks.warm_starts

Three eigenvalues at 21 checkpoints, every fifth of 100 epochs of a 64-16-10 net on 200
digits, by each method and at two tolerances, with `warm_start` and without. Counts, so
neither the machine nor its load matters. Prints a table in Markdown; all eigenvalues
must have converged.
"""

from __future__ import annotations

from typing import Any

import torch

import curvflow

WANTED = {"lanczos": "LM", "power": "LM", "lobpcg": "LA"}
TOLERANCES = (1e-3, 1e-6)


def study() -> curvflow.Study:
    """Return the study of all cases."""
    by: dict[str, Any] = {
        method: {"method": method, "which": which} for method, which in WANTED.items()
    }
    return curvflow.Study(
        study="warm-starts",
        axes={"by": by, "tol": [*TOLERANCES], "warm": [False, True]},
        stages={
            "digits": {"use": "data.digits", "num_train": 200},
            "fit": {
                "use": "train",
                "data": "digits",
                "model": {"kind": "mlp", "hidden": [16], "activation": "tanh"},
                "rule": {"rule": "sgd", "lr": 0.1},
                "epochs": 100,
                "dtype": "float64",
                "checkpoints": {"every": 5},
            },
            "tracked": {
                "use": "probe.eigenvalue_tracking",
                "trajectory": "fit",
                "method": "${by.method}",
                "which": "${by.which}",
                "k": 3,
                "tol": "${tol}",
                "max_iterations": 2000,
                "warm_start": "${warm}",
            },
        },
    )


def main() -> None:
    """Print a row for each method and tolerance."""
    torch.set_num_threads(1)
    tracked = curvflow.run(study(), store="memory:")["tracked"]
    print("| method | tol | anew | warm | saved |\n|---|---|---|---|---|")
    for method, which in WANTED.items():
        for tol in TOLERANCES:
            cases = tracked.sel(by=method, tol=tol)
            if not cases["all_converged"].values.all():
                raise ArithmeticError(f"{method} has not converged to {tol}")
            anew, warm = (
                int(cases["num_matvecs"].sel(warm=begun)) for begun in (False, True)
            )
            saved = f"{100 * (1 - warm / anew):.0f} %"
            print(f"| {method}, {which} | {tol:.0e} | {anew} | {warm} | {saved} |")


if __name__ == "__main__":
    main()
