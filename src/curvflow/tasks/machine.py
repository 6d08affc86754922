"""Devices and threads that PyTorch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from curvflow.errors import RequestError
from curvflow.tasks.registry import Machine


def machine_for(
    device: str, threads: int, compiler: str = "none", main_memory: int = 0
) -> Machine:
    """Choose the device that a request names, or the best that is available.

    Args:
        device: `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.
        threads: number of CPU threads of PyTorch.
        compiler: mode of torch.compile, or `none`.
        main_memory: bytes of main memory; 0 if unknown.

    Returns:
        The machine to compute on.

    Raises:
        RequestError: a GPU was requested and there is none.
    """
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise RequestError(
            "--device: expected a CUDA device that PyTorch can use, got none. "
            "Use --device cpu, or install a CUDA build of PyTorch."
        )
    if has_cuda and device != "cpu":
        gpu = torch.cuda.get_device_properties(0)
        device_name, hardware, memory = "cuda:0", gpu.name, gpu.total_memory
    else:
        device_name, hardware = "cpu", torch.backends.cpu.get_cpu_capability()
        memory = main_memory
    return Machine(
        device_name,
        hardware=hardware,
        threads=threads,
        compiler=compiler,
        memory=memory,
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of PyTorch's CPU threads for the duration of a block.

    Subnormal numbers count as zero within it: weights that decay towards zero would
    make every product with them many times slower.

    Args:
        count: number of threads.

    Yields:
        Nothing; the caller's setting is restored afterwards.
    """
    before, was_flushing = torch.get_num_threads(), _flushes_denormals()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushing)
        torch.set_num_threads(before)


def _flushes_denormals() -> bool:
    """Return the processor's present setting, which PyTorch does not report."""
    tiny = torch.finfo(torch.float64).tiny
    return float(torch.tensor(tiny, dtype=torch.float64) / 2) == 0


@dataclass(frozen=True)
class Devices:
    """Versions of PyTorch and CUDA, and the GPUs that they can use.

    Attributes:
        torch: version of PyTorch.
        cuda: version of CUDA that it is built for; None for a CPU build.
        gpus: names of the GPUs, in the order of their numbers.
    """

    torch: str
    cuda: str | None
    gpus: tuple[str, ...]


def devices() -> Devices:
    """Return the devices of PyTorch, which warns of a driver it cannot use."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = tuple(torch.cuda.get_device_name(index) for index in range(count))
    return Devices(str(torch.__version__), torch.version.cuda, names)
