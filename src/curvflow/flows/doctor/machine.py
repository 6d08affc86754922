"""Cores, memory, and what is said about threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from curvflow.flows.doctor.finding import Finding

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# What a container may use, by the second and the first form of control groups.
LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
SCARCE = 2 << 30


def machine_findings(
    environment: Mapping[str, str] = os.environ, memory: int | None = None
) -> Iterator[Finding]:
    """Look at the cores and the memory, and at variables that set threads.

    Args:
        environment: the variables.
        memory: bytes that may be used; this machine's by default.

    Yields:
        What was found.
    """
    cores = _cores()
    yield Finding("cores", "ok", f"{cores} that this process may use")
    size = _memory() if memory is None else memory
    told = f"{size / 2**30:.1f} GiB that this process may use"
    if size < SCARCE:
        remedy = "Use few workers and small tiles, or a larger machine."
        yield Finding("memory", "warn", told, remedy)
    else:
        yield Finding("memory", "ok", told)
    yield _threads(environment, cores)


def _threads(environment: Mapping[str, str], cores: int) -> Finding:
    said = {name: environment[name] for name in THREADS if environment.get(name)}
    if not said:
        return Finding("threads", "ok", "no variable set; --threads decides")
    told = ", ".join(f"{name}={value}" for name, value in said.items())
    values = [int(value) for value in said.values() if value.isdigit()]
    if len(values) < len(said) or max(values) > cores:
        remedy = f"Unset what is no number of at most {cores}; --threads decides."
        return Finding("threads", "warn", told, remedy)
    return Finding("threads", "ok", told)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in LIMITS:
        with suppress(OSError, ValueError):
            size = min(size, int(path.read_text(encoding="ascii")))
    return size
