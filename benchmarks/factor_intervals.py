"""Coverage of the intervals of `probe.factor_error`, where the truth is known.

    python -m benchmarks.factor_intervals [--repetitions N]

Networks of 3 inputs and 3 classes, trained for some epochs, whose Gauss-Newton matrix
is written out: how many of 300 intervals of each number, of vectors of their own, hold
the truth; and of the parts of `within`, of factors by a recursion and of drawn labels
beside exact ones. Prints tables in Markdown; all numbers are drawn by fixed seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Data, Factors, Member, NodeData, Outcome, Weights
from curvflow.tasks.curvature.network_operators import batched_operator, problem_of
from curvflow.tasks.curvature.stored_factors import block_operator
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
PARTS = tuple(
    f"{of}{part}"
    for of in ("", "block_")
    for part in ("factorisation", "departure", "interplay")
)
FORMS: tuple[dict[str, Any], ...] = (
    {"fisher_type": "recursive"},
    {"fisher_type": "mc"},
    {"fisher_type": "mc", "structure": "ekfac"},
)


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


def true_parts(factors: Factors, exact: Factors, G: Tensor) -> dict[str, float]:
    """Return what the parts of `within` truly are, of blocks the first's."""
    blocks = block_operator([factors])
    eye = torch.eye(len(G), dtype=torch.float64)[None]
    K, E = (blocks @ eye)[0], (block_operator([exact]) @ eye)[0]
    B = torch.zeros_like(G)
    for block in blocks.blocks:
        at = block.columns[:, None], block.columns
        B[at] = G[at]
    first = blocks.blocks[0].columns
    told: dict[str, float] = {}
    for of in ("", "block_"):
        few = [A[first][:, first] if of else A for A in (B, E, K)]
        left, right = few[0] - few[1], few[1] - few[2]
        size = few[0].square().sum() if of else G.square().sum()
        told |= {
            f"{of}factorisation": float(left.square().sum() / size),
            f"{of}departure": float(right.square().sum() / size),
            f"{of}interplay": float(2 * (left * right).sum() / size),
        }
    return told


def coverage(name: str, form: Mapping[str, Any], repetitions: int) -> dict[str, float]:
    """Return how many of the intervals of each number hold the truth.

    Args:
        name: of the network.
        form: parameters of the factors; with drawn labels or a recursion the parts of
            `within` are told.
        repetitions: intervals of each number, a multiple of `AT_ONCE`.
    """
    data, weights = trained(NETS[name])
    given: dict[str, NodeData] = {"weights": weights, "data": data}

    def taken(form: Mapping[str, Any]) -> Factors:
        found = outcome_of("probe.factors", member("probe.factors", form, **given))
        return Factors("factors", "probe.factors", {}, found.arrays, "f")

    G = dense(member("probe.trace", {"operator": "ggn"}, **given))
    factors = taken(form)
    if "fisher_type" in form:
        given["exact"] = exact = taken({**form, "fisher_type": "type-2"})
        true = true_parts(factors, exact, G)
    else:
        true = truths(factors, G)
    held = dict.fromkeys(true, 0)
    for start in range(0, repetitions, AT_ONCE):
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
            for number in true:
                low, high = (
                    np.ravel(told.arrays[f"{number}_{end}"])[0]
                    for end in ("low", "high")
                )
                held[number] += bool(low - 1e-9 <= true[number] <= high + 1e-9)
    return {number: count / repetitions for number, count in held.items()}


def table(
    numbers: Sequence[str], forms: Sequence[Mapping[str, Any]], repetitions: int
) -> None:
    """Print how many intervals of each number hold the truth, for both networks."""
    cases = [(name, form) for name in NETS for form in forms]
    found = [coverage(*case, repetitions) for case in cases]
    titles = [f"{name}, {' '.join(form.values())}" for name, form in cases]
    print("| number |", " | ".join(titles), "|")
    print("|" + "---|" * (len(cases) + 1))
    for number in numbers:
        row = " | ".join(f"{each[number]:.1%}" for each in found)
        print(f"| `{number}` | {row} |")
    print()


def repetitions_of(description: str) -> int:
    """Return how many intervals of each number the command line wants."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    repetitions: int = parser.parse_args().repetitions
    if repetitions < AT_ONCE or repetitions % AT_ONCE:
        parser.error(f"--repetitions: expected a multiple of {AT_ONCE}")
    return repetitions


def main() -> None:
    """Print the shares of intervals that hold the truth."""
    repetitions = repetitions_of(__doc__)
    table(NUMBERS, [{"structure": each} for each in STRUCTURES], repetitions)
    table(PARTS, FORMS, repetitions)


if __name__ == "__main__":
    main()
