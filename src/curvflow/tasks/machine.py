"""Which device computes, and on how many threads."""

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
    """Turn what was asked for into a device that is there.

    Args:
        device: `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.
        threads: how many PyTorch is going to use on the CPU.
        compiler: mode of torch.compile, or `none`.
        main_memory: bytes that the CPU has; 0 if that is not known.

    Returns:
        The machine to compute on.

    Raises:
        RequestError: a GPU was asked for and there is none.
    """
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise RequestError(
            "--device: expected a CUDA device that PyTorch can use, got none. "
            "Use --device cpu, or install a CUDA build of PyTorch."
        )
    if has_cuda and device != "cpu":
        found = torch.cuda.get_device_properties(0)
        where, hardware, memory = "cuda:0", found.name, found.total_memory
    else:
        where, hardware = "cpu", torch.backends.cpu.get_cpu_capability()
        memory = main_memory
    return Machine(
        where, hardware=hardware, threads=threads, compiler=compiler, memory=memory
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch's CPU operations use so many threads, and no longer than needed.

    Numbers below the smallest normal one count as zero meanwhile: weights that decay
    towards zero would make every product with them many times slower.

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
    """Return the processor's present setting, which PyTorch does not tell."""
    tiny = torch.finfo(torch.float64).tiny
    return float(torch.tensor(tiny, dtype=torch.float64) / 2) == 0


@dataclass(frozen=True)
class Devices:
    """What PyTorch can compute on.

    Attributes:
        torch: its version.
        cuda: version of CUDA it is built for; None for a CPU build.
        gpus: names, in the order of their numbers.
    """

    torch: str
    cuda: str | None
    gpus: tuple[str, ...]


def devices() -> Devices:
    """Return what PyTorch can compute on; it warns of a driver it cannot use."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = tuple(torch.cuda.get_device_name(index) for index in range(count))
    return Devices(str(torch.__version__), torch.version.cuda, names)
