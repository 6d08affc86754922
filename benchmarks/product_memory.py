"""Peak memory of blocks of products, and of probes, beside what is estimated.

Each net is multiplied, or probed, in a process of its own. The peak is that of its
resident memory over what it held before, with a small product or probe before it, so
that kernels are loaded. Prints a table of megabytes and the ratio estimate / peak.

    product_memory.py [ORDER | ggn | PROBE | products | probes] ...
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Member, Weights
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import BatchedGaussNewton, BatchedHessian, sample_losses
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.tasks.numerics.derivatives.passes import Averaged
from curvflow.tasks.registry import Machine, find

# Model, shape of a sample, samples, models, columns.
NETS: dict[str, tuple[dict[str, Any], tuple[int, ...], int, int, int]] = {
    "mlp": ({"kind": "mlp", "hidden": [512, 512]}, (784,), 500, 2, 16),
    "lenet5": ({"kind": "lenet5"}, (1, 28, 28), 64, 2, 8),
    "vgg": ({"kind": "vgg", "depth": 11, "width": 0.25}, (3, 32, 32), 16, 2, 4),
    "preresnet": ({"kind": "preresnet", "depth": 20}, (3, 32, 32), 8, 2, 4),
    "cnn_cifar": ({"kind": "cnn_cifar"}, (3, 32, 32), 16, 2, 4),
}

PRODUCTS = [*ORDERS, "ggn"]

# Kind and parameters; few iterations, for the peak is reached at the first restart.
FEW: dict[str, Any] = {"max_iterations": 12, "seed": 1}
PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "spectrum": ("probe.spectrum", {"num_runs": 4, "num_steps": 10}),
    "lanczos": ("probe.eigenvalues", {"method": "lanczos", **FEW}),
    "power": ("probe.eigenvalues", {"method": "power", **FEW, "max_iterations": 3}),
    "lobpcg": (
        "probe.eigenvalues",
        {"method": "lobpcg", "which": "LA", **FEW, "max_iterations": 3},
    ),
    "factors": ("probe.factors", {}),
    "mc-factors": ("probe.factors", {"fisher_type": "mc"}),
    "ekfac": ("probe.factors", {"structure": "ekfac"}),
}


def data_of(shape: tuple[int, ...], samples: int) -> Data:
    rng = np.random.default_rng(0)
    arrays = {
        "inputs": rng.normal(size=(samples, *shape)),
        "targets": np.arange(samples) % 10,
        "test_inputs": np.zeros((0, *shape)),
        "test_targets": np.zeros(0, dtype=np.int64),
        "num_classes": np.array(10),
    }
    return Data("data", "data.array", {}, arrays, "random")


def operator_of(name: str, what: str, samples: int = 0) -> tuple[Averaged, int]:
    model, shape, all_samples, models, columns = NETS[name]
    samples = samples or all_samples
    data = data_of(shape, samples)
    problem = pose(parse_model(model), "cross_entropy", data)
    size = problem.network.num_parameters
    weights_MD = 0.05 * torch.randn(models, size, dtype=torch.float64)
    statistics_MS = problem.network.first_statistics().expand(models, -1)
    loaded = load_samples(problem, [data], "", "cpu", torch.float64)
    if what == "ggn":
        return (
            BatchedGaussNewton(
                problem.network.outputs,
                sample_losses("cross_entropy"),
                weights_MD,
                loaded.inputs,
                loaded.targets,
                fixed_MS=statistics_MS,
            ),
            columns,
        )
    (order,) = (order for order in ORDERS if order == what)
    operator = BatchedHessian(
        problem.losses,
        weights_MD,
        loaded.inputs,
        loaded.targets,
        fixed_MS=statistics_MS,
        order=order,
    )
    return operator, columns


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def members_of(name: str, what: str, samples: int = 0) -> list[Member]:
    model, shape, all_samples, models, _ = NETS[name]
    data = data_of(shape, samples or all_samples)
    problem = pose(parse_model(model), "cross_entropy", data)
    statistics = problem.network.first_statistics().numpy()
    rng = np.random.default_rng(1)
    kind, params = PROBES[what]
    checked = find_kind(kind).params.model_validate(params)
    found = []
    for number in range(models):
        weights = 0.05 * rng.normal(size=problem.network.num_parameters)
        arrays = {
            "weights": np.concatenate([weights, statistics]),
            "network": np.array(problem.text),
        }
        fit = Weights("fit", "train", {}, arrays, f"fit{number}")
        found.append(Member(checked, {"weights": [fit], "data": [data]}))
    return found


def measure(name: str, what: str) -> dict[str, float]:
    torch.set_num_threads(1)
    return probed(name, what) if what in PROBES else multiplied(name, what)


def multiplied(name: str, what: str) -> dict[str, float]:
    operator, columns = operator_of(name, what)
    estimate = operator.product_bytes(columns)
    few, _ = operator_of(name, what, samples=2)
    few @ torch.ones(*operator.shape[:2], 1, dtype=torch.float64)
    del few

    def compute() -> None:
        block = torch.ones(*operator.shape[:2], columns, dtype=torch.float64)
        operator @ block

    return {"estimate": estimate, "peak": peak_of(compute)}


def probed(name: str, what: str) -> dict[str, float]:
    kind, _ = PROBES[what]
    found = find(kind)
    few = members_of(name, what, samples=2)
    short = {"num_runs": 1, "num_steps": 2} if what == "spectrum" else FEW | {"k": 1}
    params = few[0].params.model_copy(update={**short, "max_iterations": 2})
    found.compute([Member(params, one.inputs) for one in few], Machine())
    del few
    (one, *others) = members_of(name, what)
    shared = found.data_bytes(one)
    estimate = (1 + len(others)) * (found.member_bytes(one) - shared) + shared
    del one, others

    def compute() -> None:
        found.compute(members_of(name, what), Machine())

    return {"estimate": estimate, "peak": peak_of(compute)}


def peak_of(compute: Callable[[], None]) -> int:
    """Return the peak of resident bytes over what is held before."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    compute()
    peak = next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(peak) * 1024 - before


def main() -> None:
    groups = {"products": PRODUCTS, "probes": list(PROBES)}
    wanted = sys.argv[1:] or ["products"]
    asked = [one for name in wanted for one in groups.get(name, [name])]
    print(f"{'net':12} {'what':22} {'estimate':>9} {'peak':>9} ratio")
    for name in NETS:
        for what in asked:
            # Large blocks go back to the system as soon as they are free.
            found = subprocess.run(
                [sys.executable, __file__, "--one", name, what],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
            )
            one = json.loads(found.stdout)
            ratio = one["estimate"] / one["peak"]
            print(
                f"{name:12} {what:22} {one['estimate'] / 1e6:9.1f} "
                f"{one['peak'] / 1e6:9.1f} {ratio:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
