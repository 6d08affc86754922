"""Peak memory of Kronecker factors, of their errors and of training by them.

    python -m benchmarks.factor_memory [NET ...] [--tasks TASK,...] [--models N]

Each net and task has a process of its own. The peak is that of its resident memory over
what it held before, with a small net of the same kind done before it, so that kernels
are loaded; the estimate is what planning expects of the same members, data that they
share counted once. Blocks go back to the system as soon as they are free. Prints a
table in Markdown, of megabytes, and fails where an estimate is off by more than 20 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.product_memory import data_of, peak_of
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Factors, Member, Weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, find

# Model, shape of a sample, samples.
NETS: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "MLP 784-256-256-10": ({"kind": "mlp", "hidden": [256, 256]}, (784,), 1000),
    "LeNet-5": ({"kind": "lenet5"}, (1, 28, 28), 500),
    "ResNet": (
        {"kind": "resnet", "widths": [8, 16, 32, 64], "blocks": [2, 2, 2, 2]},
        (3, 32, 32),
        64,
    ),
    "vit": ({"kind": "vit", "width": 32, "heads": 4}, (3, 32, 32), 64),
    "MLP 64-16-10, many samples": ({"kind": "mlp", "hidden": [16]}, (64,), 50_000),
}

# Kind and parameters.
KFAC = {"rule": "kfac", "damping": 0.1}
STEPS = {"epochs": 1, "batch_size": 512}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "type-2": ("probe.factors", {}),
    "mc": ("probe.factors", {"fisher_type": "mc"}),
    "ekfac": ("probe.factors", {"structure": "ekfac"}),
    "float32": ("probe.factors", {"dtype": "float32"}),
    "error": ("probe.factor_error", {"num_probes": 2, "num_runs": 2, "num_steps": 2}),
    "kfac": ("train", {"rule": KFAC, **STEPS}),
}

# Where asked for: oneDNN, which takes convolutions in single precision alone, prepares
# kernels for each of their shapes, and keeps them.
ASKED = ("float32",)

BOUND = 0.2


def members(
    net: str, task: str, models: int, factors: Sequence[Mapping[str, Any]] = ()
) -> list[Member]:
    """Return members of a tile, with data of their own process."""
    model, shape, samples = NETS[net]
    kind, params = TASKS[task]
    if net == "small":
        params = {name: p for name, p in params.items() if name != "batch_size"}
    data = data_of(shape, samples)
    if kind == "train":
        given = find_kind(kind).params.model_validate({"model": model, **params})
        seeds = [given.model_copy(update={"seed": n}) for n in range(models)]
        return [Member(one, {"data": [data]}) for one in seeds]
    problem = pose(parse_model(model), "cross_entropy", data)
    statistics = problem.network.first_statistics().numpy()
    rng, found = np.random.default_rng(1), []
    for number in range(models):
        weights = 0.05 * rng.normal(size=problem.network.num_parameters)
        arrays = {
            "weights": np.concatenate([weights, statistics]),
            "network": np.array(problem.text),
        }
        fit = Weights("fit", "train", {}, arrays, f"fit{number}")
        inputs: dict[str, Any] = {"weights": [fit], "data": [data]}
        if factors:
            own = {name: np.array(array) for name, array in factors[number].items()}
            inputs["factors"] = [
                Factors("factors", "probe.factors", {}, own, f"factors{number}")
            ]
        given = find_kind(kind).params.model_validate(params)
        found.append(Member(given, inputs))
    return found


def measure(net: str, task: str, models: int) -> dict[str, float]:
    """Return the estimate and the peak of a task, in bytes."""
    torch.set_num_threads(1)
    model, shape, _ = NETS[net]
    small = {**model, "hidden": [8]} if "hidden" in model else model
    NETS["small"] = small, shape, 2
    implementation = find(TASKS[task][0])
    given: dict[str, list[Mapping[str, Any]]] = {name: [] for name in ("small", net)}
    if task == "error":
        for name in given:
            done = find("probe.factors").compute(
                members(name, "type-2", models), Machine()
            )
            given[name] = [outcome.arrays for outcome in done]
            del done
    implementation.compute(members("small", task, models, given["small"]), Machine())
    (one, *others) = members(net, task, models, given[net])
    shared = implementation.data_bytes(one)
    own = implementation.member_bytes(one) - shared
    estimate = (1 + len(others)) * own + shared
    del one, others

    def compute() -> None:
        implementation.compute(members(net, task, models, given[net]), Machine())

    return {"estimate": estimate, "peak": peak_of(compute)}


def main() -> int:
    """Print the table."""
    asked = argparse.ArgumentParser()
    asked.add_argument("nets", nargs="*")
    usual = [task for task in TASKS if task not in ASKED]
    asked.add_argument("--tasks", default=",".join(usual))
    asked.add_argument("--models", type=int, default=1)
    asked.add_argument("--one", action="store_true")
    args = asked.parse_args()
    if args.one:
        (net,) = args.nets
        print(json.dumps(measure(net, args.tasks, args.models)))
        return 0
    print("| network | task | estimate | peak | estimate / peak |")
    print("|---|---|---|---|---|")
    is_off = False
    for net in args.nets or NETS:
        for task in args.tasks.split(","):
            command = [sys.executable, "-m", "benchmarks.factor_memory", net, "--one"]
            command += ["--tasks", task, "--models", str(args.models)]
            found = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
            )
            one = json.loads(found.stdout)
            ratio = one["estimate"] / one["peak"]
            is_off |= abs(ratio - 1) > BOUND
            numbers = f"{one['estimate'] / 1e6:.0f} | {one['peak'] / 1e6:.0f}"
            print(f"| {net} | {task} | {numbers} | {ratio:.2f} |", flush=True)
    return int(is_off)


if __name__ == "__main__":
    sys.exit(main())
