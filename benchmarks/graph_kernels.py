"""Products of a graph's rows with vectors side by side, by the kernels that there are.

    python -m benchmarks.graph_kernels [--nodes N] [--threads N] [--turns N]

A graph grown by preferential attachment, five edges a node; PyTorch's product of
compressed rows, which probes use, SciPy's, and PyTorch's sum over bags of rows. Median
seconds of turns, and each as a multiple of the first. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Member
from curvflow.tasks.numerics.operators.graphs import rows_tensor
from curvflow.tasks.registry import Machine, find

BLOCKS = (2, 16)


def drawn(nodes: int) -> Mapping[str, Any]:
    """Return the compressed rows of a graph."""
    kind = find_kind("data.random_graph")
    asked = {"model": "barabasi_albert", "n": nodes, "m": 5}
    params = kind.params.model_validate(asked)
    (outcome,) = find(kind.name).compute([Member(params, {})], Machine())
    return outcome.arrays


def kernels(rows: Mapping[str, Any], block: Tensor) -> dict[str, Callable[[], Any]]:
    """Return the products of each kernel with a block of columns."""
    nodes, count = len(block), len(rows["indices"])
    values = torch.rand(count, dtype=block.dtype)
    starts, columns = (torch.from_numpy(rows[k]) for k in ("indptr", "indices"))
    matrix = rows_tensor(starts, columns, values, (nodes, nodes))
    shaped = (values.numpy(), rows["indices"], rows["indptr"])
    scipys = sparse.csr_array(shaped, (nodes, nodes))
    plain, ends = block.numpy(), columns.long()
    offsets = starts.long()[:-1]
    return {
        "PyTorch, compressed rows": lambda: matrix @ block,
        "SciPy": lambda: scipys @ plain,
        "PyTorch, embedding_bag": lambda: functional.embedding_bag(
            ends, block, offsets, mode="sum", per_sample_weights=values
        ),
    }


def seconds(calls: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the median of the seconds of each call, in turns after a first one."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            begun = perf_counter()
            call()
            if turn:
                found[name].append(perf_counter() - begun)
    return {name: median(times) for name, times in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=875_713)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    rows = drawn(options.nodes)
    print("| vectors | precision | kernel | seconds | of the first |")
    print("|---" * 5 + "|")
    for dtype in (torch.float32, torch.float64):
        for width in BLOCKS:
            block = torch.rand(options.nodes, width, dtype=dtype)
            times = seconds(kernels(rows, block), options.turns)
            first = next(iter(times.values()))
            for name, time in times.items():
                precision = str(dtype).rpartition(".")[2]
                print(
                    f"| {width} | {precision} | {name} | {time:.3f} s | "
                    f"{time / first:.2f} × |"
                )


if __name__ == "__main__":
    main()
