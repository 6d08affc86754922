"""Which device computes, and on how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    Args:
        count: number of threads.

    Yields:
        Nothing; the caller's setting is restored afterwards.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
