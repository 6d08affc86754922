"""Effective draws per gradient of the exact samplers on posteriors that are known.

    python -m benchmarks.samplers [--seeds N]

Each case is sampled by both at one localization and with equal numbers of gradients,
half a thousand draws of four chains. The estimate is held against the coefficient of
`probe.llc_known`: by quadrature, or by exact Gibbs draws. Effective draws are of the
losses (Vehtari et al. 2021), so that a chain that is stuck where the loss hardly
changes has many of them: the deviation in standard errors of the draws alone, `|z|`,
says whether they may be believed. Prints a table in Markdown, medians over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import curvflow

METHODS = ("mala", "multiscale_mala")
CASES: dict[str, tuple[str, list[Any], float]] = {
    "quadratic, 4 equal": ("quadratic_well", [1.0] * 4, 1.0),
    "quadratic, 8 decades": (
        "quadratic_well",
        [10 ** (2 - 8 * i / 39) for i in range(40)],
        0.03,
    ),
    "w1^2 w2^4 w3^6": ("normal_crossing", [[1, 2, 3]], 0.1),
    "w1^2 + w2^4 + w3^6": ("normal_crossing", [[1], [2], [3]], 0.4),
    "3x3 3x3, rank 1": ("deep_linear", [3, 3, 3, 1], 0.4),
    "three 3x3, rank 1": ("deep_linear", [3, 3, 3, 3, 1], 0.4),
    "three 2x2, rank 0": ("deep_linear", [2, 2, 2, 2, 0], 0.01),
}
STUDY = """\
study: samplers
axes: {{seed: {seeds}, sampler: [{methods}]}}
stages:
  population: {{use: data.known_answer, {data}}}
  truth: {{use: weights.known_answer, data: population, {truth}}}
  llc: {{use: probe.llc, weights: truth, nbeta: 1.0e+4, localization: {gamma},
        sampling_method: "${{sampler}}", num_steps_bw_draws: 20, seed: "${{seed}}"}}
  known: {{use: probe.llc_known, draws: llc, data: population, {truth}}}
"""


def study(kind: str, shape: list[Any], gamma: float, seeds: int) -> str:
    """Return the text of a study of one case."""
    if kind == "deep_linear":
        inputs, *hidden, outputs, rank = shape
        truth = f"model: {{kind: {kind}, hidden: {hidden}}}, rank: {rank}"
        data = f"{truth}, inputs: {inputs}, outputs: {outputs}"
    else:
        name = "powers" if kind == "normal_crossing" else "eigenvalues"
        data = truth = f"model: {{kind: {kind}, {name}: {shape}}}"
    return STUDY.format(
        seeds=seeds, methods=", ".join(METHODS), data=data, truth=truth, gamma=gamma
    )


def main() -> None:
    """Print a row for each case and method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(
        "| posterior | sampler | known | estimate | \\|z\\| | draws / 1,000 gradients |"
    )
    print("|---|---|---|---|---|---|")
    for name, (kind, shape, gamma) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "study.yaml")
            path.write_text(study(kind, shape, gamma, options.seeds))
            results = curvflow.run(path)
            llc, known = results["llc"], results["known"]
        for method in METHODS:
            found, truth = llc.sel(sampler=method), known.sel(sampler=method)
            apart = found["llc_mean"] - truth["llc_known"]
            z = (
                abs(apart)
                / (found["llc_mcse"] ** 2 + truth["llc_known_sem"] ** 2) ** 0.5
            )
            chains = found["gradient_equivalents"] - found["calibration_equivalents"]
            print(
                f"| {name} | `{method}` | {float(truth['llc_known'].mean()):.3f} "
                f"| {float(found['llc_mean'].mean()):.3f} "
                f"| {float(z.median()):.1f} "
                f"| {1000 * float((found['ess_bulk'] / chains).median()):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
