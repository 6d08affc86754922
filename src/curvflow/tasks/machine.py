"""Devices and threads that PyTorch computes with."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from curvflow.errors import RequestError
from curvflow.tasks.registry import Machine

# Settings of the allocator, by their numbers in glibc's malloc.h: how much freed memory
# at the end of the heap is kept, and from which size on an array is mapped by itself.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3

# What is kept: as much as a tile may take by default, of arrays below the most that
# glibc allows for the other.
KEPT, MAPPED = 1 << 30, 1 << 25

# Where glibc's own adjustment of the two ends, once arrays of 32 MB were freed, and
# where it begins, both as in mallopt(3). There is none if the environment names one.
ADJUSTED, FIRST_MAPPED = (2 * MAPPED, MAPPED), 1 << 17

# Names in the environment by which malloc takes settings, as in mallopt(3).
SETTINGS = (
    "MALLOC_CHECK_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)

# What a nanny of Dask names for its workers.
NANNY = ("MALLOC_TRIM_THRESHOLD_", "65536")


class _Blocks:
    """Blocks of this process that keep freed memory, which may lie in each other."""

    count, lock = 0, threading.Lock()


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

    On Linux with glibc up to 1 GiB of freed memory is kept for the next arrays, of
    those below 32 MB; larger ones are mapped by themselves. Where the environment has
    settings of malloc (MALLOC_..._ or GLIBC_TUNABLES), they stay, but for what a nanny
    of Dask sets.

    Args:
        count: number of threads.

    Yields:
        Nothing; the caller's setting is restored afterwards, and memory given back. Of
        malloc the nanny's setting is, or else the values that glibc adjusts itself to
        once large arrays were freed; that it adjusts them cannot be restored.
    """
    before, was_flushing = torch.get_num_threads(), _flushes_denormals()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        with _freed_memory_kept():
            yield
    finally:
        torch.set_flush_denormal(was_flushing)
        torch.set_num_threads(before)


@contextmanager
def _freed_memory_kept() -> Iterator[None]:
    """Keep memory that is freed for the next arrays, until the outermost block ends.

    Memory that was given back is new when it is taken again, and to touch it first may
    take longer than to compute with it. A nanny of Dask has its workers give back all.
    Only glibc has these settings; other allocators go on as they do.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt") or _is_set_otherwise():
        yield
        return
    with _Blocks.lock:
        _Blocks.count += 1
        _set(libc, KEPT, MAPPED)
    try:
        yield
    finally:
        with _Blocks.lock:
            _Blocks.count -= 1
            if not _Blocks.count:
                _give_back(libc)


def _settings() -> dict[str, str]:
    """Return the environment's settings of malloc, as glibc finds them."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    values = {name: getenv(name.encode()) for name in SETTINGS}
    return {name: value.decode() for name, value in values.items() if value is not None}


def _is_set_otherwise() -> bool:
    """Return whether the environment has settings of malloc but those of a nanny."""
    return not _settings().items() <= dict([NANNY]).items()


def _give_back(libc: Any) -> None:
    """Give back free memory, and do so from now on as before."""
    name, value = NANNY
    has_nanny = _settings().get(name) == value
    _set(libc, *((int(value), FIRST_MAPPED) if has_nanny else ADJUSTED))
    libc.malloc_trim(0)


def _set(libc: Any, trim: int, mapped: int) -> None:
    libc.mallopt(MMAP_THRESHOLD, mapped)
    libc.mallopt(TRIM_THRESHOLD, trim)


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
