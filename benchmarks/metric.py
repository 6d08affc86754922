"""Chains in the metric of Kronecker factors against chains without.

    python -m benchmarks.metric [--only logistic|networks] [--samplers NAME ...]
        [--seeds N] [--draws N]

Logistic regression, inputs scaled from 1 to 100, at its minimum: each sampler is
calibrated, with factors given and without. The coefficient is half the number of
parameters. Effective draws are of the losses, per gradient over all the data of the
chains, burn-in included and calibration not; work of calibration is given beside them.
Then networks trained on digits, of which the condition numbers decide. Prints tables in
Markdown, medians over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import curvflow
from benchmarks.probes_batched import member
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Array, Data, Factors, Member, Weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, find

SIZE, SAMPLES, NBETA = 20, 1000, 1e5
SAMPLERS = ("mala", "sgld", "multiscale_mala")
NETWORKS = """\
study: metric
axes: {{seed: {seeds}, activation: [tanh, relu]}}
stages:
  digits: {{use: data.digits, num_train: 400}}
  fit: {{use: train, data: digits, loss: cross_entropy, seed: "${{seed}}",
        model: {{kind: mlp, hidden: [16, 16], activation: "${{activation}}"}},
        rule: {{rule: adam, lr: 0.01}}, epochs: 15, dtype: float64}}
  factors: {{use: probe.factors, weights: fit}}
  llc: {{use: probe.llc, weights: fit, preconditioner: factors, seed: "${{seed}}",
        sampling_method: mala, num_draws: 8, num_burnin_steps: 16,
        num_steps_bw_draws: 1}}
"""


def minimum(inputs: Array, labels: Array) -> Array:
    """Return the weights at which the loss is least, by Newton's method."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(50):
        share = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (share - (labels == 0))
        hessian = (inputs.T * (share * (1 - share))) @ inputs
        weights -= np.linalg.solve(hessian, gradient)
    return weights


def regression(seed: int) -> Mapping[str, Any]:
    """Return the minimum of a logistic regression, its data and its factors."""
    random = np.random.default_rng(seed)
    scales = np.geomspace(1, 100, SIZE)
    inputs = random.normal(size=(SAMPLES, SIZE)) * scales
    share = 1 / (1 + np.exp(-inputs @ (random.normal(size=SIZE) / scales)))
    labels = (random.uniform(size=SAMPLES) < share).astype(np.int64)
    data = Data("data", "data.array", {}, dataset(inputs, labels), f"logistic {seed}")
    model = parse_model({"kind": "logistic", "bias": False})
    text = pose(model, "cross_entropy", data).text
    kept = {"weights": minimum(inputs, labels), "network": np.array(text)}
    weights = Weights("fit", "train", {}, kept, f"minimum {seed}")
    one = member("probe.factors", {}, weights=weights, data=data)
    (arrays,) = computed("probe.factors", [one])
    factors = Factors("factors", "probe.factors", {}, arrays, f"factors {seed}")
    return {"weights": weights, "data": data, "preconditioner": factors}


def without_factors(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs of a probe that is given no factors."""
    return {name: problem[name] for name in ("weights", "data")}


def computed(kind: str, members: list[Member]) -> list[Mapping[str, Any]]:
    """Return what a kind computes of members, in one batch."""
    return [each.arrays for each in find(kind).compute(members, Machine())]


def print_logistic(samplers: Sequence[str], seeds: int, draws: int) -> None:
    """Print a row for each sampler, with factors and without."""
    print(
        "| sampler | factors given | metric | known | estimate | verdicts | "
        "draws / 1,000 gradients | gradients of calibration |"
    )
    print("|---|---|---|---|---|---|---|---|")
    problems = [regression(seed) for seed in range(seeds)]
    for sampler in samplers:
        settings = {"sampling_method": sampler, "nbeta": NBETA, "num_draws": draws}
        for is_given in (False, True):
            members = [
                member("probe.llc", settings | {"seed": seed}, **given)
                for seed, problem in enumerate(problems)
                for given in [problem if is_given else without_factors(problem)]
            ]
            found = computed("probe.llc", members)
            print(row(sampler, found, is_given=is_given), flush=True)


def row(sampler: str, found: list[Mapping[str, Any]], *, is_given: bool) -> str:
    """Return a row of medians."""

    def median(name: str) -> float:
        return float(np.median([float(arrays[name]) for arrays in found]))

    rates = [
        1000
        * float(a["ess_bulk"])
        / float(a["gradient_equivalents"] - a["calibration_equivalents"])
        for a in found
    ]
    metrics = {str(arrays.get("metric", "none")) for arrays in found}
    verdicts = sorted(str(arrays["verdict"]) for arrays in found)
    return (
        f"| `{sampler}` | {'yes' if is_given else 'no'} | {', '.join(sorted(metrics))} "
        f"| {SIZE / 2:.1f} | {median('llc_mean'):.2f} ± {median('llc_sem'):.2f} "
        f"| {', '.join(verdicts)} | {float(np.median(rates)):.1f} "
        f"| {median('calibration_equivalents'):,.0f} |"
    )


def print_networks(seeds: int) -> None:
    """Print a row for each activation."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "study.yaml")
        path.write_text(NETWORKS.format(seeds=seeds))
        llc = curvflow.run(path)["llc"]
    print("| network | condition number | in the metric of factors | taken |")
    print("|---|---|---|---|")
    for activation in ("tanh", "relu"):
        found = llc.sel(activation=activation)
        taken = int((found["metric"] == "factors").sum())
        without, inside = (
            float(found[name].median()) for name in ("condition", "factors_condition")
        )
        print(f"| {activation} | {without:.3g} | {inside:.3g} | {taken} of {seeds} |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("logistic", "networks"))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=SAMPLERS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only != "networks":
        print_logistic(options.samplers, options.seeds, options.draws)
    if options.only != "logistic":
        print_networks(options.seeds)


if __name__ == "__main__":
    main()
