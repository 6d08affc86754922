"""A data set larger than the memory allowed, trained on, probed and sampled.

A process writes a file of inputs, 1.25 GiB, and starts one that may take only 1.5 GiB
of address space more than it has once PyTorch is loaded, as by `ulimit -v`. That one
runs a study of two networks of 2048-4-2: an epoch of training, the Hessian trace, its
largest eigenvalue, and the local learning coefficient. Printed are seconds, and what
the process took at most, in memory of its own and in address space.

    python -m benchmarks.streaming [GiB of the file] [GiB allowed] [disk or memory]
        [npy, zarr or nc]

With `memory` the data set is read whole, as a small one would be, and does not fit.
At the end stand the first digits of the digest of each stage's results, which are
those of any other way that the same inputs are read.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import zarr

from curvflow.stores.local import LocalStore

WIDTH, ROWS = 2048, 4096
STUDY = """
study: streaming
axes: {{seed: 2}}
stages:
  data: {{use: data.array, {files}, rows_above: {above}}}
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


def write(folder: Path, size: float, form: str) -> None:
    """Write inputs, float32, and labels that depend on them, a block at a time."""
    draw, blocks = np.random.default_rng(0), round(size * 2**30 / (4 * WIDTH * ROWS))
    weights, labels = draw.normal(size=WIDTH), []
    file, rows = ROWS_OF[form](folder / f"inputs.{form}", (blocks * ROWS, WIDTH))
    for number in range(blocks):
        block = draw.standard_normal((ROWS, WIDTH), dtype=np.float32)
        rows[number * ROWS : (number + 1) * ROWS] = block
        labels.append((block @ weights > 0).astype(np.int64))
    held = np.concatenate(labels)
    if form == "npy":
        np.save(folder / "targets.npy", held)
    elif form == "zarr":
        file.create_array("targets", data=held)
    else:
        file.variables["targets"][:] = held
        file.close()


def npy_rows(path: Path, shape: tuple[int, int]) -> tuple[None, Any]:
    """Return the rows of a new `.npy` file."""
    return None, np.lib.format.open_memmap(path, "w+", np.float32, shape)


def zarr_rows(path: Path, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Return a new zarr folder and the rows of an array in it."""
    made, chunks = zarr.open_group(path, mode="w"), (512, WIDTH)
    return made, made.create_array("inputs", shape=shape, chunks=chunks, dtype="f4")


def netcdf_rows(path: Path, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Return a new netCDF file and the rows of a variable in it."""
    file = h5netcdf.File(path, "w")
    file.dimensions = {"sample": shape[0], "feature": shape[1]}
    file.create_variable("targets", ("sample",), dtype="i8")
    chunks = {"chunks": (512, WIDTH), "compression": "gzip", "compression_opts": 1}
    size = ("sample", "feature")
    return file, file.create_variable("inputs", size, dtype="f4", **chunks)


ROWS_OF = {"npy": npy_rows, "zarr": zarr_rows, "nc": netcdf_rows}


def status(name: str) -> float:
    """Return a figure of this process's memory, in GiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 2**20
    raise LookupError(name)


def limited(folder: Path, allowed: float, form: str, *, on_disk: bool) -> None:
    """Run the study within so many GiB of address space more than there are now."""
    import torch

    import curvflow

    torch.set_num_threads(1)
    torch.ones(2, 2, requires_grad=True).sum().backward()  # its threads are there
    start = status("VmSize")
    limit = round((start + allowed) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    above = 1 << 20 if on_disk else 1 << 40
    files = f"path: inputs.{form}"
    files += ", targets_path: targets.npy" if form == "npy" else ""
    (folder / "study.yaml").write_text(STUDY.format(above=above, files=files))
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
    found = LocalStore(folder / "store").index().receipts.values()
    marks = sorted((one.stage, one.key, one.digest[:12]) for one in found)
    print("digests:", ", ".join(f"{stage} {digest}" for stage, _, digest in marks))


def main() -> None:
    """Write the file and run the study in a process of its own."""
    if sys.argv[1:2] == ["limited"]:
        folder, allowed, where, form = sys.argv[2:]
        limited(Path(folder), float(allowed), form, on_disk=where == "disk")
        return
    defaults = ("1.25", "1.5", "disk", "npy")
    size, allowed, where, form = (*sys.argv[1:], *defaults[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), float(size), form)
        print(f"{size} GiB of inputs, .{form}, {allowed} GiB allowed", flush=True)
        command = [sys.executable, "-m", "benchmarks.streaming", "limited"]
        subprocess.run([*command, name, allowed, where, form], check=False)


if __name__ == "__main__":
    main()
