"""Train the eight rows of Jarvis (2021) on XOR as one tile, and one after another.

240 networks of 2-12-1: eight learning rules, thirty seeds each. The plain loop is what
one would write by hand: a module, its parameters' gradients, for the rules that look at
the curvature a second backward pass, and an update in place. Both start from the same
weights and must end at equal losses. Each time is the best of several after an untimed
call, on one thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.by_hand import steps
from benchmarks.ensemble import MACHINE, data_set, faster, plain_module, timed
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.train import TrainParams
from curvflow.schemas.nodes import Data, Member
from curvflow.tasks.networks.problems import read
from curvflow.tasks.registry import Machine, find

EPOCHS, SEEDS = 100, 30
ROWS = (
    "sgd-small",
    "sgd-large",
    "metric-small",
    "metric-large",
    "l2-large",
    "selective-l2-large",
    "l2-stopped-large",
    "l2-stopped-selective-large",
)
# Half of the epochs on either side of the stop.
TAU = EPOCHS // 2
COMPILERS = ("none", "default")


def rule(row: str) -> dict[str, Any]:
    stops = {"tau": TAU} if "stopped" in row else {}
    return {"preset": f"jarvis-2021/xor-tanh/{row}", **stops}


def tile(data: Data) -> list[Member]:
    params = find_kind("train").params
    settings = {
        "model": {"kind": "mlp", "hidden": [12], "activation": "tanh"},
        "loss": "sse",
        "epochs": EPOCHS,
        "record_every": EPOCHS,
        "checkpoints": {"every": EPOCHS},
    }
    return [
        Member(
            params.model_validate({**settings, "rule": rule(row), "seed": seed}),
            {"data": [data]},
        )
        for row in ROWS
        for seed in range(SEEDS)
    ]


def train_plainly(module: nn.Module, x: Tensor, y: Tensor, one: Any) -> float:
    """Return the final loss of one network trained by hand."""
    criterion = nn.MSELoss(reduction="sum")
    for epoch in range(EPOCHS):
        steps(module, criterion, [(x, y)], one=one, epoch=epoch)
    with torch.no_grad():
        return float(criterion(module(x), y))


def main() -> None:
    """Compare on one thread, call by call and compiled."""
    torch.set_num_threads(1)
    data = data_set("data.xor")
    members = tile(data)
    x = torch.as_tensor(data["inputs"], dtype=torch.float32)
    y = torch.as_tensor(data["targets"], dtype=torch.float32)

    rules = [cast("TrainParams", member.params).rule for member in members]

    def together(machine: Machine) -> list[Any]:
        return find("train").compute(members, machine)

    outcomes = together(MACHINE)
    layout = read(outcomes[0].arrays["network"].item()).network.layout
    firsts = [torch.as_tensor(o.arrays["weights"][:1]).float() for o in outcomes]

    def apart() -> list[float]:
        return [
            train_plainly(plain_module(layout.unflatten(w)), x, y, one)
            for w, one in zip(firsts, rules, strict=True)
        ]

    seconds, plain = timed(apart)
    for compiler in COMPILERS:
        machine = Machine(compiler=compiler)
        name = "tile" if compiler == "none" else "compiled"
        together(machine)
        taken, outcomes = timed(partial(together, machine))
        losses = [float(o.arrays["final_train_loss"]) for o in outcomes]
        gap = float(np.median(np.abs(np.subtract(plain, losses))))
        print(
            f"{len(members)} networks 2-12-1, {EPOCHS} epochs: "
            f"{name:>8} {taken:5.2f} s  loop {seconds:6.2f} s  "
            f"{faster(seconds / taken)}  median gap of losses {gap:.0e}"
        )


if __name__ == "__main__":
    main()
