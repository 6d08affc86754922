"""Train 80 networks on MNIST as one tile on a GPU: eight rules, ten seeds.

The networks are 784-1024-1024-10, the width that reproduces the norms of Jarvis (2021),
whose Table 5.1 gives 0.30 to 0.48 s per epoch and network on the author's machine. The
loop trains one network of each rule by hand on the same device, and stands for ten.
Times are those of the second and later epochs; nothing but the last is evaluated.
`--quick` shows on a CPU, with few samples and narrow networks, that it works.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.by_hand import steps
from benchmarks.ensemble import faster
from benchmarks.regularisers import ROWS
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Data, Member
from curvflow.tasks.machine import machine_for
from curvflow.tasks.registry import Machine, find

PRINTED = (0.30, 0.48)
BATCH = 128
# Samples, width, and seeds of each rule.
WHOLE = (60_000, 1024, 10)
SMALL = (1280, 32, 2)


def mnist(count: int) -> Data:
    """Return random images of MNIST's size: times do not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, 784, generator=generator)
    targets = torch.arange(count) % 10
    arrays = {
        "inputs": inputs.numpy(),
        "targets": targets.double().numpy(),
        "test_inputs": inputs[:BATCH].numpy(),
        "test_targets": targets[:BATCH].double().numpy(),
        "num_classes": torch.tensor(10).numpy(),
    }
    return Data("data", "data.mnist", {}, arrays, "random")


def tile(data: Data, width: int, seeds: int, epochs: int) -> list[Member]:
    params = find_kind("train").params
    settings = {
        "model": {"kind": "mlp", "hidden": [width, width], "activation": "tanh"},
        "epochs": epochs,
        "batch_size": BATCH,
        "drop_last": True,
        "record_every": epochs,
    }
    return [
        Member(
            params.model_validate(
                {
                    **settings,
                    "rule": {"preset": f"jarvis-2021/mnist-tanh/{row}"},
                    "seed": seed,
                }
            ),
            {"data": [data]},
        )
        for row in ROWS
        for seed in range(seeds)
    ]


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def epoch_together(data: Data, machine: Machine, width: int, seeds: int) -> float:
    """Return the seconds of one epoch: what two more take, over two."""
    taken = []
    for epochs in (1, 1, 3):
        members = tile(data, width, seeds, epochs)
        started = time.perf_counter()
        find("train").compute(members, machine)
        wait(machine.device)
        taken.append(time.perf_counter() - started)
    return (taken[2] - taken[1]) / 2


def batches(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(x), device=x.device)
    for rows in order.split(BATCH):
        if len(rows) == BATCH:
            yield x[rows], y[rows]


def epoch_apart(data: Data, machine: Machine, width: int) -> dict[str, float]:
    """Return the seconds of one epoch of one network under each rule, by hand."""
    x = torch.as_tensor(data["inputs"], device=machine.device)
    y = torch.as_tensor(data["targets"], device=machine.device).long()
    found = {}
    for member in tile(data, width, 1, 1):
        one: Any = member.params
        module = nn.Sequential(
            nn.Linear(784, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 10),
        ).to(machine.device)
        for _ in range(2):  # the first is not timed
            started = time.perf_counter()
            epoch = getattr(one.rule, "tau", 0)
            steps(
                module,
                nn.CrossEntropyLoss(),
                batches(x, y),
                one=one.rule,
                epoch=epoch,
            )
            wait(machine.device)
            name = f"{one.rule.rule} {one.rule.lr:g} {one.rule.init.normal:g}"
            found[name] = time.perf_counter() - started
    return found


def main() -> None:
    """Print seconds per epoch and network, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small, on a CPU")
    parser.add_argument(
        "--compile", default="none", choices=["none", "default", "reduce-overhead"]
    )
    asked = parser.parse_args()
    machine = machine_for("cpu" if asked.quick else "cuda", 1, asked.compile)
    count, width, seeds = SMALL if asked.quick else WHOLE
    data = mnist(count)
    networks = len(ROWS) * seeds
    together = epoch_together(data, machine, width, seeds) / networks
    apart = epoch_apart(data, machine, width)
    mean = sum(apart.values()) / len(apart)
    print(f"{machine.hardware}: {networks} networks 784-{width}-{width}-10")
    print(f"tile  {together:.4f} s per epoch and network, compile {asked.compile}")
    for name, seconds in apart.items():
        print(f"loop  {seconds:.4f} s per epoch, {name}")
    print(f"tile against the loop: {faster(mean / together)}")
    if not asked.quick:
        low, high = (printed / together for printed in PRINTED)
        print(f"tile against the dissertation: {faster(low)} to {faster(high)}")


if __name__ == "__main__":
    main()
