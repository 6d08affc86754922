"""What a step of natural gradient descent costs beside a plain gradient.

Networks of dense layers of about 50,000 parameters, batches of 128 rows of 784 numbers.
CPU seconds of one thread: of the gradient of the batch loss, of a step of gradient
descent, and of a step by the damped Fisher matrix of the same batch, which begins with
that gradient; each the least of several turns, taken in turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.schemas.rules import Rule
from curvflow.schemas.rules.ngd import Ngd
from curvflow.schemas.rules.ngd_online import NgdOnline
from curvflow.schemas.rules.sgd import Sgd
from curvflow.tasks.networks.problems import Problem, Samples, pose
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.step_context import Step
from curvflow.tasks.training.updates import Updates

# Steps of one period of ngd_online, after its first ones.
LATER = range(12, 16)
BATCH, INPUTS, CLASSES = 128, 784, 10
HIDDEN = {"one hidden layer": (64,), "two hidden layers": (60, 40)}
RULES: dict[str, Rule] = {
    "sgd": Sgd(lr=0.1),
    "ngd, sampled": Ngd(lr=0.1, alpha=0.1),
    "ngd, empirical": Ngd(lr=0.1, alpha=0.1, fisher="empirical"),
    "ngd, exact, 32 samples": Ngd(lr=0.1, alpha=0.1, fisher="exact", fisher_batch=32),
    "ngd_online": NgdOnline(lr=0.1, alpha=0.1),
}


def posed(hidden: tuple[int, ...], dtype: torch.dtype) -> tuple[Problem, Samples]:
    """Return a problem on drawn inputs, and a batch of it."""
    x = torch.rand(BATCH, INPUTS, generator=stream(0, "inputs"), dtype=dtype)
    y = torch.arange(BATCH) % CLASSES
    arrays = dataset(x.numpy(), y.numpy(), x[:0].numpy(), y[:0].numpy())
    model: Any = parse_model(
        {"kind": "mlp", "hidden": list(hidden), "activation": "relu"}
    )
    problem = pose(model, "auto", Data("data", "data.array", {}, arrays, "drawn"))
    return problem, Samples(x[None], y[None])


def least(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Return the least CPU seconds of each call, in turns after an untimed one."""
    found = dict.fromkeys(calls, float("inf"))
    for turn in range(turns + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:
                found[name] = min(found[name], time.process_time() - start)
    return found


def costs(
    hidden: tuple[int, ...], dtype: torch.dtype, models: int, turns: int
) -> dict[str, float]:
    """Return CPU seconds of the gradient, and of it with a step of each rule."""
    problem, batch = posed(hidden, dtype)
    size = problem.network.num_parameters
    generator = stream(0, "weights")
    weights_MD = 0.05 * torch.randn(models, size, generator=generator, dtype=dtype)
    noise = Noise(list(range(models)), 0, "dropout", weights_MD)
    nothing_M0 = weights_MD[:, :0]

    def gradient() -> Tensor:
        return gradients(
            problem, weights_MD, nothing_M0, batch, noise, without=models
        ).gradient

    def now(count: int, models: slice | Tensor) -> Step:
        return Step(
            epoch=0,
            count=count,
            begins_epoch=count == 0,
            ends_epoch=False,
            problem=problem,
            statistics=nothing_M0[models],
            batch=batch,
            product=None,
            draw=noise.uniform(),
            dropout=lambda some: noise.of(some).uniform(),
            gradient_at=lambda _: gradient(),
        )

    def steps(rule: Rule) -> Callable[[], None]:
        updates = Updates([rule] * models, weights_MD, problem)
        updates.step(gradient(), weights_MD, partial(now, 0))

        def some() -> None:
            for count in LATER:
                updates.step(gradient(), weights_MD, partial(now, count))

        return some

    def some_gradients() -> None:
        for _ in LATER:
            gradient()

    calls: dict[str, Callable[[], object]] = {"gradient": some_gradients}
    calls |= {name: steps(rule) for name, rule in RULES.items()}
    return {name: found / len(LATER) for name, found in least(calls, turns).items()}


def main() -> None:
    """Print costs as multiples of the gradient's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--models", type=int, default=2, help="trained side by side")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for title, hidden in HIDDEN.items():
        for dtype in (torch.float64, torch.float32):
            found = costs(hidden, dtype, given.models, given.turns)
            size = posed(hidden, dtype)[0].network.num_parameters
            base = found.pop("gradient")
            kind = str(dtype).removeprefix("torch.")
            print(f"{title}, {size} parameters, {kind}, {given.models} networks")
            print(f"  gradient{'':24}{1e3 * base / given.models:8.2f} ms each")
            for name, seconds in found.items():
                print(f"  gradient and {name:22}{seconds / base:6.2f} gradients")


if __name__ == "__main__":
    main()
