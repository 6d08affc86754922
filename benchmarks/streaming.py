"""A data set larger than the memory allowed, trained on, probed and sampled.

A process writes a file of inputs, 1.25 GiB, and starts one that may take only 1.5 GiB
of address space more than it has once PyTorch is loaded, as by `ulimit -v`. That one
runs a study of two networks of 2048-4-2: an epoch of training, the Hessian trace, its
largest eigenvalue, and the local learning coefficient. Printed are seconds, and what
the process took at most, in memory of its own and in address space.

    python -m benchmarks.streaming [GiB of the file] [GiB allowed] [disk or memory]

With `memory` the data set is read whole, as a small one would be, and does not fit.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH, ROWS = 2048, 4096
STUDY = """
study: streaming
axes: {{seed: 2}}
stages:
  data: {{use: data.array, path: inputs.npy, targets_path: targets.npy,
          rows_above: {above}}}
  fit: {{use: train, data: data, model: {{kind: mlp, hidden: [4]}}, epochs: 1,
         rule: {{rule: sgd, lr: 0.05}}, batch_size: 512, seed: "${{seed}}"}}
  trace: {{use: probe.hessian_trace, weights: fit, num_probes: 4, dtype: float32}}
  top: {{use: probe.eigenvalues, weights: fit, k: 1, method: lanczos,
         block: 2, max_iterations: 4, tol: 0.05, dtype: float32}}
  chains: {{use: probe.llc, weights: fit, calibrate: none, sampling_method: sgld,
            lr: 1.0e-6, nbeta: 100.0, localization: 100.0, batch_size: 512,
            num_chains: 2, num_draws: 8, num_burnin_steps: 8, dtype: float32,
            num_steps_bw_draws: 2, at_draws: batch}}
"""


def write(folder: Path, size: float) -> None:
    """Write inputs, float32, and labels that depend on them, a block at a time."""
    draw, blocks = np.random.default_rng(0), round(size * 2**30 / (4 * WIDTH * ROWS))
    weights, labels = draw.normal(size=WIDTH), []
    form = {"descr": "<f4", "fortran_order": False, "shape": (blocks * ROWS, WIDTH)}
    with (folder / "inputs.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, form)
        for _ in range(blocks):
            block = draw.standard_normal((ROWS, WIDTH), dtype=np.float32)
            block.tofile(file)
            labels.append((block @ weights > 0).astype(np.int64))
    np.save(folder / "targets.npy", np.concatenate(labels))


def status(name: str) -> float:
    """Return a figure of this process's memory, in GiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 2**20
    raise LookupError(name)


def limited(folder: Path, allowed: float, *, on_disk: bool) -> None:
    """Run the study within so many GiB of address space more than there are now."""
    import torch

    import curvflow

    torch.set_num_threads(1)
    torch.ones(2, 2, requires_grad=True).sum().backward()  # its threads are there
    start = status("VmSize")
    limit = round((start + allowed) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    above = 1 << 20 if on_disk else 1 << 40
    (folder / "study.yaml").write_text(STUDY.format(above=above))
    begun = time.perf_counter()
    result = curvflow.run(folder / "study.yaml", store=str(folder / "store"), workers=1)
    print(
        f"{time.perf_counter() - begun:.0f} s, at most {status('VmHWM'):.2f} GiB of "
        f"memory, of address space {status('VmPeak') - start:.2f} GiB more than at the "
        f"start"
    )
    stages = {"fit": "final_train_loss", "trace": "trace", "top": "eigenvalues"}
    for stage, name in {**stages, "chains": "llc_mean"}.items():
        table = result[stage]
        values = ", ".join(f"{value:.6g}" for value in table[name].values.flat)
        print(f"{stage}: {name} {values}, {float(table['seconds'].sum()):.0f} s")


def main() -> None:
    """Write the file and run the study in a process of its own."""
    if sys.argv[1:2] == ["limited"]:
        limited(Path(sys.argv[2]), float(sys.argv[3]), on_disk=sys.argv[4] == "disk")
        return
    size, allowed, where = (
        *sys.argv[1:],
        *("1.25", "1.5", "disk")[len(sys.argv) - 1 :],
    )
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), float(size))
        held = (Path(name) / "inputs.npy").stat().st_size / 2**30
        print(f"{held:.2f} GiB of inputs in a file, {allowed} GiB allowed")
        command = [sys.executable, "-m", "benchmarks.streaming", "limited"]
        subprocess.run([*command, name, allowed, where], check=False)


if __name__ == "__main__":
    main()
