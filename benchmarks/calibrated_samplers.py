"""What calibrated samplers find where the learning coefficient is exactly known.

    python -m benchmarks.calibrated_samplers [--draws N]

Linear regression with ten eigenvalues of 1, at weights that fit every sample: the
posterior is a Gaussian and the coefficient half the sum of nbeta h / (nbeta h + gamma).
Each sampler is calibrated, with draws ten steps apart; the estimate is shown with its
standard error, beside the bias that was predicted and the verdict. Prints a table in
Markdown.
"""

from __future__ import annotations

import argparse
from typing import get_args

import numpy as np
import torch

from benchmarks.probes_batched import member
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.kinds.shared.sampling import Method
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Member, Weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, find

SIZE, SAMPLES, NBETA, CHAINS = 10, 200, 5000.0, 8
SAMPLERS = get_args(Method)


def regression(sampler: str, draws: int) -> Member:
    """Return a probe at the minimum of a regression."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(SAMPLES, SIZE)))[0]
    inputs, targets = basis * np.sqrt(SAMPLES / 2), np.zeros((SAMPLES, 1))
    arrays = dataset(inputs, targets, inputs[:1], targets[:1])
    data = Data("data", "data.array", {}, arrays, "regression")
    text = pose(parse_model({"kind": "linear", "bias": False}), "mse", data).text
    kept = {"weights": np.zeros(SIZE), "network": np.array(text)}
    settings = {
        "sampling_method": sampler,
        "nbeta": NBETA,
        "num_chains": CHAINS,
        "num_draws": draws,
        "num_steps_bw_draws": 10,
    }
    weights = Weights("fit", "train", {}, kept, "minimum")
    return member("probe.llc", settings, weights=weights, data=data)


def main() -> None:
    """Print a row for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=800)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| sampler | known | estimate | `step_bias` | `batch_bias` | batch | verdict |"
    )
    print("|---|---|---|---|---|---|---|")
    for sampler in SAMPLERS:
        probe = regression(sampler, asked.draws)
        (found,) = find("probe.llc").compute([probe], Machine("cpu"))
        one = {
            name: array.item() for name, array in found.arrays.items() if not array.ndim
        }
        known = SIZE / 2 * NBETA / (NBETA + one["localization"])
        print(
            f"| `{sampler}` | {known:.2f} "
            f"| {one['llc_mean']:.2f} ± {one['llc_sem']:.2f} "
            f"| {100 * one['step_bias']:.1f} % | {100 * one['batch_bias']:.1f} % "
            f"| {one['batch_size']} "
            f"| {one['verdict']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
