"""What a step of K-FAC costs beside a plain gradient.

    python -m benchmarks.kfac_step [--autoencoder] [--turns N] [--dtype DTYPE]

A network of dense layers, 784-256-256-10, and batches of 512 drawn rows, two models at
a time. CPU seconds of one thread: of the gradient of the batch loss, and of steps by
averages of Kronecker factors, inverted every 5 steps, the damping adapted every 5, each
with the gradient that it begins with; the mean of some steps, the least of several
turns, taken in turns. With `--autoencoder` that of Figure 4.1 of Botev (2020), batches
of 500, and its rules: Adam, Nesterov's method, K-FAC and KFRA.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.schemas.rules import Rule
from curvflow.schemas.rules.kfac import Kfac
from curvflow.tasks.networks.problems import Problem, Samples, pose
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.step_context import Step
from curvflow.tasks.training.updates import Updates

BATCH, INPUTS, HIDDEN, CLASSES, MODELS = 512, 784, (256, 256), 10, 2
# Steps of one turn: two periods of inversion and of adaptation; of presets one of the
# longer ones.
STEPS, LONG = 10, 20
RULES: dict[str, Rule] = {
    "kfac, mc": Kfac(inv_update_steps=5, factor_decay=0.95),
    "kfac, type-2": Kfac(inv_update_steps=5, factor_decay=0.95, fisher_type="type-2"),
    "kfac, mc, exact inverse": Kfac(
        inv_update_steps=5, factor_decay=0.95, inverse="exact"
    ),
    "kfac, mc, no averages": Kfac(inv_update_steps=5),
    "kfac, mc, step lr": Kfac(
        inv_update_steps=5,
        factor_decay=0.95,
        step="lr",
        lr=0.1,
        damping_adaptation_interval=None,
    ),
}

PIXELS, ENCODER, PICTURES = 196, (128, 64, 32, 8), 500
OF_AUTOENCODERS: dict[str, Any] = {
    "adam": {"rule": "adam", "lr": 0.01},
    "nag": {"rule": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True},
    "kfac, Algorithm 1": {"preset": "botev-2020/kfac"},
    "kfra, Algorithm 1": {"preset": "botev-2020/kfra"},
}


def posed(dtype: torch.dtype) -> tuple[Problem, Samples]:
    """Return a problem on drawn inputs, and a batch of it."""
    x = torch.rand(BATCH, INPUTS, generator=stream(0, "inputs"), dtype=dtype)
    y = torch.arange(BATCH) % CLASSES
    arrays = dataset(x.numpy(), y.numpy(), x[:0].numpy(), y[:0].numpy())
    model: Any = parse_model(
        {"kind": "mlp", "hidden": list(HIDDEN), "activation": "relu"}
    )
    problem = pose(model, "auto", Data("data", "data.array", {}, arrays, "drawn"))
    return problem, Samples(x[None], y[None])


def posed_autoencoder(dtype: torch.dtype) -> tuple[Problem, Samples]:
    """Return the problem of an autoencoder on drawn pictures, and a batch of it."""
    drawn = torch.rand(PICTURES, PIXELS, generator=stream(0, "inputs"), dtype=dtype)
    x = drawn.square()
    arrays = dataset(x.numpy(), x.numpy())
    settings = train_settings({"rule": "sgd", "lr": 0.1})
    data = Data("data", "data.array", {}, arrays, "pictures")
    return pose(settings.model, settings.loss, data), Samples(x[None], x[None])


def train_settings(rule: Any) -> Any:
    """Return the settings of a training of the autoencoder by a rule."""
    return find_kind("train").params.model_validate(
        {
            "model": {"kind": "autoencoder", "hidden": list(ENCODER)},
            "loss": {"kind": "bce", "reduction": "sum"},
            "rule": rule,
            "epochs": 1,
        }
    )


class Training:
    """A rule on one batch, step after step."""

    def __init__(
        self, rule: Rule | None, problem: Problem, batch: Samples, steps: int
    ) -> None:
        """Take the rule, or none for the gradient alone, and the steps of a turn."""
        self._problem, self._batch, self._steps = problem, batch, steps
        size = problem.network.num_parameters
        drawn = torch.randn(MODELS, size, generator=stream(0, "weights"))
        self._weights = 0.03 * drawn.to(batch.inputs)
        self._statistics = self._weights[:, :0]
        rules = [] if rule is None else [rule] * MODELS
        self._updates = Updates(rules, self._weights, problem) if rules else None
        self._count = 0

    def run(self) -> None:
        """Take some steps."""
        for _ in range(self._steps):
            noise = partial(Noise, range(MODELS), self._count)
            found = gradients(
                self._problem,
                self._weights,
                self._statistics,
                self._batch,
                noise("dropout", self._weights),
                without=MODELS,
            )
            if self._updates is not None:
                self._weights = self._updates.step(
                    found.gradient, self._weights, self._context
                )
            self._count += 1

    def _context(self, models: Any) -> Step:
        noise = Noise(range(MODELS), self._count, "rule", self._weights)
        return Step(
            epoch=0,
            count=self._count,
            begins_epoch=False,
            ends_epoch=False,
            problem=self._problem,
            statistics=self._statistics,
            batch=self._batch,
            product=None,
            draw=noise.uniform(),
            dropout=lambda chosen: noise.of(chosen).uniform(),
            gradient_at=_unused,
        )


def _unused(weights: Tensor) -> Tensor:
    raise NotImplementedError


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


def main() -> None:
    """Print a row for the gradient and for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--autoencoder", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    rules, steps = RULES, STEPS
    problem, batch = posed(dtype)
    if options.autoencoder:
        rules, steps = (
            {n: train_settings(r).rule for n, r in OF_AUTOENCODERS.items()},
            LONG,
        )
        problem, batch = posed_autoencoder(dtype)
    rows: dict[str, Rule | None] = {"gradient": None, **rules}
    calls: dict[str, Callable[[], object]] = {}
    calls |= {n: Training(rule, problem, batch, steps).run for n, rule in rows.items()}
    seconds = least(calls, options.turns)
    print(f"{'step':26} {'ms':>8} {'gradients':>10}")
    for name, taken in seconds.items():
        share = taken / seconds["gradient"]
        print(f"{name:26} {1000 * taken / steps:8.1f} {share:10.1f}")


if __name__ == "__main__":
    main()
