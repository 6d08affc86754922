"""Peak memory and seconds of a language model with a large vocabulary.

    python -m benchmarks.vocabulary [--only STAGE ...] [--threads N] [--untied]

A decoder of four blocks, 128 wide, for the 50,257 tokens of GPT-2, on rows of 64 drawn
tokens: an epoch of training, products with the Hessian and with the Gauss-Newton
matrix, gradients, and learning coefficients with a loss kept of each token. Each stage
is a process of its own, and computes by its task what a tile of one network does. The
peak is that of the whole process, by `getrusage`; beside it what a plan estimates for
the stage alone, and what the process held before it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Member, Weights
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, find

VOCABULARY, TOKENS, SAMPLES = 50_257, 64, 3

# Kind and parameters of each stage.
STAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "training": (
        "train",
        {
            "rule": {"rule": "sgd", "lr": 0.1},
            "epochs": 1,
            "batch_size": 3,
            "dtype": "float32",
            "checkpoints": {"every": 1},
        },
    ),
    "gradients": ("probe.gradient_variance", {"num_samples": 2, "dtype": "float32"}),
    "hessian": ("probe.trace", {"num_probes": 4, "method": "hutchinson"}),
    "ggn": (
        "probe.trace",
        {"num_probes": 4, "method": "hutchinson", "operator": "ggn"},
    ),
    "llc": (
        "probe.llc",
        {
            "calibrate": "none",
            "sampling_method": "sgld",
            "lr": 1e-6,
            "localization": 100.0,
            "batch_size": 1,
            "num_chains": 2,
            "num_draws": 8,
            "num_burnin_steps": 1,
            "dtype": "float32",
            "keep_losses": "tokens",
            "max_observed": 2,
        },
    ),
}


def model(*, tied: bool) -> dict[str, Any]:
    """Return the model of a study."""
    return {
        "kind": "transformer",
        "layers": 4,
        "width": 128,
        "heads": 4,
        "tied": tied,
        "vocabulary": VOCABULARY,
    }


def drawn(samples: int = SAMPLES) -> Data:
    """Return rows of drawn tokens, and the token after each."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (samples, TOKENS + 1))
    arrays = dataset_of(np.float64, VOCABULARY, ids[:, :-1], ids[:, 1:])
    return Data("data", "data.array", {}, arrays, "drawn")


def member(stage: str, *, tied: bool) -> Member:
    """Return the node of a stage."""
    kind, params = STAGES[stage]
    data, spec = drawn(), model(tied=tied)
    if kind == "train":
        params = params | {"model": spec}
        return Member(find_kind(kind).params.model_validate(params), {"data": [data]})
    problem = pose(parse_model(spec), "auto", data)
    law = parse_model(spec).init
    weights_D = initial_weights(problem.network, stream(0, "init"), law).numpy()
    arrays = {"weights": weights_D, "network": np.array(problem.text)}
    fit = Weights("fit", "train", {}, arrays, "fit")
    checked = find_kind(kind).params.model_validate(params)
    return Member(checked, {"weights": [fit], "data": [data]})


def peak() -> float:
    """Return the largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(stage: str, *, tied: bool, threads: int) -> dict[str, float]:
    """Return peaks in GiB, and seconds."""
    torch.set_num_threads(threads)
    node, found = member(stage, tied=tied), find(STAGES[stage][0])
    # A network alone in its tile is computed with a copy of itself.
    shared = found.data_bytes(node)
    estimate = 2 * (found.member_bytes(node) - shared) + shared
    before, begun = peak(), time.perf_counter()
    outcomes = found.compute([node, node], Machine())
    seconds = time.perf_counter() - begun
    assert outcomes[0].status == "ok", outcomes[0].reason
    return {
        "estimate": estimate / 2**30,
        "before": before,
        "peak": peak(),
        "seconds": seconds,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(STAGES), choices=STAGES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        (stage,) = chosen.only
        found = measure(stage, tied=not chosen.untied, threads=chosen.threads)
        print(json.dumps(found))
        return
    print("| stage | before | peak | estimate | estimate / peak | seconds |")
    print("|---|---|---|---|---|---|")
    for stage in chosen.only:
        command = [sys.executable, "-m", "benchmarks.vocabulary", "--here"]
        command += ["--only", stage, "--threads", str(chosen.threads)]
        command += ["--untied"] if chosen.untied else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {stage} | failed: {done.stderr.strip().splitlines()[-1:]} |")
            continue
        row = json.loads(done.stdout)
        own = row["peak"] - row["before"]
        print(
            f"| {stage} | {row['before']:.2f} GiB | {row['peak']:.2f} GiB | "
            f"{row['estimate']:.2f} GiB | {row['estimate'] / own:.2f} | "
            f"{row['seconds']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
