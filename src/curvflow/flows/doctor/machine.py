"""Python, PyTorch, cores and memory of this machine, and findings about them."""

from __future__ import annotations

import os
import platform
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

State = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes:
        check: its name, such as `prefect.fastapi`.
        state: `warn` is worth a look, `FAIL` keeps something from working.
        found: in words.
        remedy: what to do, if anything.
    """

    check: str
    state: State
    found: str
    remedy: str = ""


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


def within(
    seconds: float, name: str, check: Callable[[], Iterable[Finding]], remedy: str
) -> list[Finding]:
    """Carry out a check, but wait for it no longer than so many seconds.

    Args:
        seconds: the limit.
        name: of the check, should it not end.
        check: yields what it finds.
        remedy: what to do should it not end.

    Returns:
        What it has found. A check that did not end, or broke, is a finding as well.
    """
    found: list[Finding] = []

    def carry_out() -> None:
        # A library that is being looked at may raise anything: that is what is found.
        try:
            found.extend(check())  # one by one, so that none is lost later
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found.append(Finding(name, "FAIL", words, remedy))

    thread = threading.Thread(target=carry_out, name=f"doctor {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    so_far = list(found)
    if thread.is_alive():
        told = f"no answer within {seconds:g} s"
        so_far.append(Finding(name, "FAIL", told, remedy))
    return so_far


def installed(package: str) -> str | None:
    """Return the version of an installed package; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_below(found: str, bound: str) -> bool:
    """Tell whether a version is below a bound, `0.150.2` below `0.151`.

    Args:
        found: a version.
        bound: numbers joined by dots.

    Returns:
        Whether its leading numbers are.
    """
    return _numbers(found) < _numbers(bound)


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


OLDEST, TOO_NEW = "3.11", "3.14"


def python_findings(python: str | None = None) -> Iterator[Finding]:
    """Look at the versions of Python and curvflow.

    Args:
        python: version of Python; this one's by default.

    Yields:
        What was found.
    """
    python = python or platform.python_version()
    known = is_below(python, TOO_NEW) and not is_below(python, OLDEST)
    remedy = f"Make an environment of Python {OLDEST}, or newer but below {TOO_NEW}."
    yield (
        Finding("python", "ok", python)
        if known
        else Finding(
            "python", "warn", f"{python}, with which nothing is tested", remedy
        )
    )
    own = installed("curvflow")
    if own is None:
        found, remedy = "not installed, but imported", "Run `pip install curvflow`."
        yield Finding("curvflow", "warn", found, remedy)
    else:
        yield Finding("curvflow", "ok", own)


DRIVER = Path("/proc/driver/nvidia/version")


def torch_findings(driver: Path = DRIVER) -> Iterator[Finding]:
    """Look at PyTorch's build and its devices.

    Args:
        driver: a file that is there where a GPU's driver is.

    Yields:
        What was found.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        from curvflow.tasks.machine import devices  # slow, so within the time limit

        found = devices()
    build = "a CPU build" if found.cuda is None else f"built for CUDA {found.cuda}"
    yield Finding("torch", "ok", f"{found.torch}, {build}")
    if found.gpus:
        for index, name in enumerate(found.gpus):
            yield Finding("torch.gpu", "ok", f"cuda:{index} is {name}")
    elif found.cuda is None and driver.exists():
        remedy = "Install a CUDA build of PyTorch, as its install page says."
        yield Finding("torch.gpu", "warn", "a GPU's driver, but no CUDA build", remedy)
    elif found.cuda is not None and (driver.exists() or told):
        words = " ".join(str(told[0].message).split()) if told else "none can be used"
        remedy = (
            f"Update the driver to one for CUDA {found.cuda}, or install a PyTorch "
            "that is built for the driver's CUDA."
        )
        yield Finding("torch.gpu", "warn", words, remedy)
    else:
        yield Finding("torch.gpu", "ok", "none; everything runs on the CPU")
