"""Train many small networks as one tile, and one after another in plain PyTorch.

The plain loop is what one would write by hand: a module, an optimiser, a loop over
batches. Both start from the same weights, see the same batches, evaluate nothing but
the loss that a step computes anyway and the final one, and must end at equal losses.
Each time is the best of three after an untimed call; data are converted beforehand for
the loop, while the tile's time holds its conversion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Data, Member
from curvflow.tasks.networks.problems import read
from curvflow.tasks.numerics import stream
from curvflow.tasks.registry import Machine, find

MACHINE = Machine()
TOLERANCE = 1e-3
REPEATS = 3
COUNTS = (80, 300)

T = TypeVar("T")


def data_set(kind: str) -> Data:
    member = Member(find_kind(kind).params())
    (outcome,) = find(kind).compute([member], MACHINE)
    return Data("data", kind, {}, outcome.arrays, kind)


def tensors_of(data: Data) -> tuple[Tensor, Tensor]:
    has_labels = data["targets"].ndim == 1
    dtype = torch.int64 if has_labels else torch.float32
    return (
        torch.as_tensor(data["inputs"], dtype=torch.float32),
        torch.as_tensor(data["targets"], dtype=dtype),
    )


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds of the best of three calls, and what the last returned."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - started)
    return best, result


def train_together(
    data: Data, count: int, settings: Mapping[str, Any]
) -> tuple[float, list[float], list[list[Tensor]]]:
    """Return the seconds taken, final losses, and initial parameter tensors."""
    params = find_kind("train").params
    tile = [
        Member(params.model_validate({**settings, "seed": seed}), {"data": [data]})
        for seed in range(count)
    ]
    seconds, outcomes = timed(lambda: find("train").compute(tile, MACHINE))
    layout = read(outcomes[0].arrays["network"].item()).network.layout
    first = [torch.as_tensor(o.arrays["weights"][:1]).float() for o in outcomes]
    losses = [float(o.arrays["final_train_loss"]) for o in outcomes]
    return seconds, losses, [layout.unflatten(weights) for weights in first]


def plain_module(tensors: Sequence[Tensor]) -> nn.Module:
    widths = [tensors[0].shape[2], *(bias.shape[1] for bias in tensors[1::2])]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    module = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, tensor in zip(module.parameters(), tensors, strict=True):
            parameter.copy_(tensor[0])
    return module


def train_plainly(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    seed: int,
    settings: Mapping[str, Any],
) -> float:
    """Return the final loss of one network trained by hand."""
    criterion = nn.MSELoss() if targets.is_floating_point() else nn.CrossEntropyLoss()
    rule, size = settings["rule"], settings["batch_size"]
    optimiser = torch.optim.SGD(
        module.parameters(), lr=rule["lr"], momentum=rule["momentum"]
    )
    order = stream(seed, "order")
    curve = []
    for _ in range(settings["epochs"]):
        rows = torch.randperm(len(inputs), generator=order) if size else None
        batches = [slice(None)] if rows is None else rows.split(size)
        for batch in batches:
            optimiser.zero_grad()
            loss = criterion(module(inputs[batch]), targets[batch])
            loss.backward()
            optimiser.step()
            curve.append(loss.detach())
    with torch.no_grad():
        return float(criterion(module(inputs), targets))


def faster(ratio: float) -> str:
    """Say which side a ratio of times favours."""
    return f"{ratio:5.1f}x faster" if ratio >= 1 else f"{1 / ratio:5.1f}x SLOWER"


def compare(
    kind: str,
    hidden: Sequence[int],
    *,
    epochs: int,
    batch_size: int | None = None,
    rate: float = 0.1,
) -> None:
    """Print the times and their ratio at 80 and at 300 networks."""
    data = data_set(kind)
    settings = {
        "model": {"kind": "mlp", "hidden": list(hidden), "activation": "tanh"},
        "rule": {"rule": "sgd", "lr": rate, "momentum": 0.9},
        "epochs": epochs,
        "batch_size": batch_size,
        "record_every": epochs,
        "checkpoints": {"every": epochs},
    }
    inputs, targets = tensors_of(data)

    def train_apart(first: Sequence[Sequence[Tensor]]) -> list[float]:
        return [
            train_plainly(
                plain_module(tensors), inputs, targets, seed=seed, settings=settings
            )
            for seed, tensors in enumerate(first)
        ]

    # The first calls load libraries; neither side is timed at that.
    _, _, first = train_together(data, 2, settings)
    train_apart(first)
    for count in COUNTS:
        together, losses, first = train_together(data, count, settings)
        apart, plain = timed(partial(train_apart, first))
        gap = np.max(np.abs(np.subtract(plain, losses)))
        shapes = [first[0][0].shape[2], *(bias.shape[1] for bias in first[0][1::2])]
        print(
            f"{'-'.join(map(str, shapes)):>11} on {kind:<11} "
            f"batch {batch_size or 'all':>3} {count:>4} networks: "
            f"tile {together:6.2f} s  loop {apart:6.2f} s  "
            f"tile {faster(apart / together)}  "
            + ("losses equal" if gap < TOLERANCE else f"LOSSES DIFFER BY {gap:.1e}")
        )


def main() -> None:
    """Compare on one thread, so that neither side hides behind the other core."""
    torch.set_num_threads(1)
    compare("data.xor", [10], epochs=100)
    compare("data.digits", [64, 64], epochs=2, batch_size=32)
    compare("data.digits", [64, 64], epochs=5)
    compare("data.sinusoid", [64, 64], epochs=2, batch_size=32, rate=0.0002)


if __name__ == "__main__":
    main()
