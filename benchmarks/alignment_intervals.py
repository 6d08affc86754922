"""Coverage of the intervals of `probe.alignment`, over batches of fresh data.

    python -m benchmarks.alignment_intervals [--repetitions N]

Two small networks and their factors are given. 300 data sets of eight batches of 16
samples are drawn anew; how many of the intervals of each number hold its mean over
4,000 batches of other data. Prints a table in Markdown; all is drawn by fixed seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.factor_intervals import (
    NETS,
    member,
    outcome_of,
    repetitions_of,
    trained,
)
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Array, Data, Factors, Member, NodeData, Weights
from curvflow.tasks.registry import Machine, find

AT_ONCE, DAMPING = 25, 0.05
BATCHES, SAMPLES = 8, 16
# Data sets, and batches of each, that the truth is the mean of.
SETS, MANY = 40, 100
DIRECTIONS = ("kron", "ekfac", "blocks", "newton")
NUMBERS = ("cosine", "layer_cosine", "step", "share")


def clouds(seed: int, batches: int) -> Data:
    """Return Gaussian clouds of three classes, as the networks were trained on."""
    rng = np.random.default_rng([1, seed])
    labels = rng.integers(3, size=batches * SAMPLES)
    inputs = rng.normal(size=(len(labels), 3)) + labels[:, None]
    # A class that a set of samples lacks is a class all the same.
    arrays = {**dataset(inputs, labels), "num_classes": np.array(3)}
    return Data("data", "data.array", {}, arrays, f"clouds{seed}")


def factors_of(weights: Weights, data: Data) -> Sequence[NodeData]:
    """Return factors of a network, a stage of each structure."""
    found = []
    for structure in DIRECTIONS[:2]:
        probe = member(
            "probe.factors", {"structure": structure}, weights=weights, data=data
        )
        arrays = outcome_of("probe.factors", probe).arrays
        found.append(Factors(structure, "probe.factors", {}, arrays, structure))
    return found


def measured(
    weights: Weights, factors: Sequence[NodeData], seeds: range, batches: int
) -> Iterator[Mapping[str, Array]]:
    """Yield what is told of each data set."""
    params = {
        "damping": [DAMPING],
        "num_batches": batches,
        "references": list(DIRECTIONS[2:]),
    }
    for start in range(seeds.start, seeds.stop, AT_ONCE):
        members = []
        for seed in range(start, min(start + AT_ONCE, seeds.stop)):
            data = clouds(seed, batches)
            one = member("probe.alignment", params, weights=weights, data=data)
            members.append(Member(one.params, {**one.inputs, "factors": factors}))
        for told in find("probe.alignment").compute(members, Machine()):
            yield told.arrays


def number(arrays: Mapping[str, Array], name: str, direction: str) -> float:
    """Return a number of a direction, of layers the first's."""
    place = arrays["direction"].tolist().index(direction)
    values = arrays[name]
    return float(values[0, place, 0] if name.startswith("layer") else values[place, 0])


def coverage(name: str, repetitions: int) -> dict[tuple[str, str], float]:
    """Return how many of the intervals of each number hold its mean."""
    data, weights = trained(NETS[name])
    factors = factors_of(weights, data)
    far = range(10_000, 10_000 + SETS)
    truths = list(measured(weights, factors, far, MANY))
    told = list(measured(weights, factors, range(repetitions), BATCHES))
    found = {}
    for what in NUMBERS:
        for direction in DIRECTIONS:
            truth = np.mean([number(each, what, direction) for each in truths])
            held = [
                number(each, f"{what}_low", direction)
                <= truth
                <= number(each, f"{what}_high", direction)
                for each in told
            ]
            found[what, direction] = float(np.mean(held))
    return found


def main() -> None:
    """Print the shares of intervals that hold the mean."""
    repetitions = repetitions_of(__doc__)
    print("| network | number |", " | ".join(DIRECTIONS), "|")
    print("|---|---|" + "---|" * len(DIRECTIONS))
    for name in NETS:
        found = coverage(name, repetitions)
        for what in NUMBERS:
            row = " | ".join(f"{found[what, one]:.1%}" for one in DIRECTIONS)
            print(f"| {name} | `{what}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
