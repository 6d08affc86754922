"""Coverage of the intervals of `probe.factor_error`, where the truth is known.

    python -m benchmarks.factor_intervals

Networks of 3 inputs and 3 classes, trained for some epochs, whose Gauss-Newton matrix
is written out: how many of 300 intervals of each number, of vectors of their own, hold
the truth. Prints a table in Markdown; all numbers are drawn by fixed seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Data, Factors, Member, NodeData, Outcome, Weights
from curvflow.tasks.curvature.network_operators import batched_operator, problem_of
from curvflow.tasks.curvature.stored_blocks import block_operator
from curvflow.tasks.registry import Machine, find

REPETITIONS, AT_ONCE, DAMPING = 300, 50, 0.05
NETS = {
    "tanh": {"kind": "mlp", "hidden": [4], "activation": "tanh"},
    "relu": {"kind": "mlp", "hidden": [6, 4], "activation": "relu"},
}
STRUCTURES = ("kron", "ekfac", "diag")
NUMBERS = (
    "rel_error", "outside", "within", "cosine", "trace_error", "block_rel_error",
    "block_cosine", "block_trace_error", "logdet_error",
)  # fmt: skip


def member(kind: str, params: Mapping[str, Any], **inputs: NodeData) -> Member:
    """Return a node of a kind with its inputs."""
    checked = find_kind(kind).params.model_validate(params)
    return Member(checked, {name: [node] for name, node in inputs.items()})


def outcome_of(kind: str, one: Member) -> Outcome:
    """Compute one node."""
    return find(kind).compute([one, one], Machine())[0]


def trained(model: Mapping[str, Any]) -> tuple[Data, Weights]:
    """Return Gaussian clouds, and a network trained on them."""
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 3
    data = Data(
        "data",
        "data.array",
        {},
        dataset(rng.normal(size=(30, 3)) + labels[:, None], labels),
        "clouds",
    )
    settings = {
        "model": model,
        "rule": {"rule": "adam", "lr": 0.02},
        "epochs": 20,
        "dtype": "float64",
    }
    arrays = outcome_of("train", member("train", settings, data=data)).arrays
    taken = {"weights": arrays["weights"][-1], "network": arrays["network"]}
    return data, Weights("fit", "train", {}, taken, "w")


def dense(probe: Member) -> Tensor:
    """Return the Gauss-Newton matrix of a probe's network."""
    layout = problem_of(probe).network.layout
    operator = batched_operator(
        [probe] * 2,
        Machine(),
        [probe.params] * 2,  # type: ignore[list-item] # those of an operator
        names=layout.names,
        columns=layout.size,
    )
    eye = torch.eye(layout.size, dtype=torch.float64)
    return (operator @ eye.expand(2, -1, -1))[0]


def truths(factors: Factors, G: Tensor) -> dict[str, float]:
    """Return what the numbers of a probe truly are, of blocks the first's."""
    blocks = block_operator([factors])
    eye = torch.eye(len(G), dtype=torch.float64)
    K = (blocks @ eye[None])[0]
    inside = torch.zeros_like(G, dtype=torch.bool)
    for block in blocks.blocks:
        inside[block.columns[:, None], block.columns] = True
    first = blocks.blocks[0].columns
    G_l, K_l = (A[first][:, first] for A in (G, K))
    square, damping = G.square().sum(), DAMPING * eye
    told = {
        "rel_error": (G - K).norm() / G.norm(),
        "outside": G[~inside].square().sum() / square,
        "within": (G - K)[inside].square().sum() / square,
        "cosine": (G * K).sum() / G.norm() / K.norm(),
        "trace_error": G.trace() - K.trace(),
        "block_rel_error": (G_l - K_l).norm() / G_l.norm(),
        "block_cosine": (G_l * K_l).sum() / G_l.norm() / K_l.norm(),
        "block_trace_error": G_l.trace() - K_l.trace(),
        "logdet_error": torch.logdet(G + damping) - torch.logdet(K + damping),
    }
    return {name: float(value) for name, value in told.items()}


def coverage(name: str, structure: str) -> dict[str, float]:
    """Return how many of the intervals of each number hold the truth."""
    data, weights = trained(NETS[name])
    given = {"weights": weights, "data": data}
    found = outcome_of(
        "probe.factors", member("probe.factors", {"structure": structure}, **given)
    )
    factors = Factors("factors", "probe.factors", {}, found.arrays, "f")
    G = dense(member("probe.trace", {"operator": "ggn"}, **given))
    true, held = truths(factors, G), dict.fromkeys(NUMBERS, 0)
    for start in range(0, REPETITIONS, AT_ONCE):
        settings = {"dampings": [DAMPING], "num_steps": 15}
        members = [
            member(
                "probe.factor_error",
                {**settings, "seed": start + seed},
                factors=factors,
                **given,
            )
            for seed in range(AT_ONCE)
        ]
        for told in find("probe.factor_error").compute(members, Machine()):
            for number in NUMBERS:
                low, high = (
                    np.ravel(told.arrays[f"{number}_{end}"])[0]
                    for end in ("low", "high")
                )
                held[number] += bool(low - 1e-9 <= true[number] <= high + 1e-9)
    return {number: count / REPETITIONS for number, count in held.items()}


def main() -> None:
    """Print the shares of intervals that hold the truth."""
    cases = [(name, structure) for name in NETS for structure in STRUCTURES]
    found = [coverage(*case) for case in cases]
    print("| number |", " | ".join(f"{n}, {s}" for n, s in cases), "|")
    print("|" + "---|" * (len(cases) + 1))
    for number in NUMBERS:
        row = " | ".join(f"{each[number]:.1%}" for each in found)
        print(f"| `{number}` | {row} |")


if __name__ == "__main__":
    main()
