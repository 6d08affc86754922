"""Which device computes, and on how many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from curvflow.errors import RequestError
from curvflow.tasks.registry import Machine


def machine_for(device: str, threads: int, compiler: str = "none") -> Machine:
    """Turn what was asked for into a device that is there.

    Args:
        device: `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.
        threads: how many PyTorch is going to use on the CPU.
        compiler: mode of torch.compile, or `none`.

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
        memory = _main_memory()
    return Machine(
        where, hardware=hardware, threads=threads, compiler=compiler, memory=memory
    )


def _main_memory() -> int:
    """Return the bytes of main memory, or those that this group of processes may use.

    0 where the system does not tell.
    """
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    with suppress(OSError, ValueError):  # no such file, or the word `max`
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


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
