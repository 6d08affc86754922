"""Peak memory of blocks of products: the estimate beside what a process takes.

Each net is multiplied in a process of its own. The peak is that of its resident memory
over what it held before the product, with a small product before it, so that kernels
are loaded. Prints a table of megabytes and the ratio estimate / peak.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.tasks.numerics import BatchedGaussNewton, BatchedHessian
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.numerics.orders import ORDERS
from curvflow.tasks.numerics.passes import Averaged
from curvflow.tasks.problems import load_samples, pose

# Model, shape of a sample, samples, models, columns.
NETS: dict[str, tuple[dict[str, Any], tuple[int, ...], int, int, int]] = {
    "mlp": ({"kind": "mlp", "hidden": [512, 512]}, (784,), 500, 2, 16),
    "lenet5": ({"kind": "lenet5"}, (1, 28, 28), 64, 2, 8),
    "vgg": ({"kind": "vgg", "depth": 11, "width": 0.25}, (3, 32, 32), 16, 2, 4),
    "preresnet": ({"kind": "preresnet", "depth": 20}, (3, 32, 32), 8, 2, 4),
    "cnn_cifar": ({"kind": "cnn_cifar"}, (3, 32, 32), 16, 2, 4),
}


def operator_of(name: str, what: str, samples: int = 0) -> tuple[Averaged, int]:
    model, shape, all_samples, models, columns = NETS[name]
    samples = samples or all_samples
    rng = np.random.default_rng(0)
    arrays = {
        "inputs": rng.normal(size=(samples, *shape)),
        "targets": np.arange(samples) % 10,
        "test_inputs": np.zeros((0, *shape)),
        "test_targets": np.zeros(0, dtype=np.int64),
        "num_classes": np.array(10),
    }
    data = Data("data", "data.array", {}, arrays, "random")
    problem = pose(parse_model(model), "cross_entropy", data)
    size = problem.network.num_parameters
    weights_MD = 0.05 * torch.randn(models, size, dtype=torch.float64)
    statistics_MS = problem.network.first_statistics().expand(models, -1)
    loaded = load_samples([data], "", "cpu", torch.float64)
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


def measure(name: str, what: str) -> dict[str, float]:
    torch.set_num_threads(1)
    operator, columns = operator_of(name, what)
    estimate = operator.product_bytes(columns)
    few, _ = operator_of(name, what, samples=2)
    few @ torch.ones(*operator.shape[:2], 1, dtype=torch.float64)
    del few
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    block = torch.ones(*operator.shape[:2], columns, dtype=torch.float64)
    operator @ block
    peak = int(
        next(
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
    )
    return {"estimate": estimate, "peak": peak * 1024 - before}


def main() -> None:
    asked = sys.argv[1:] or ["forward_over_reverse", "reverse_over_reverse", "ggn"]
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
