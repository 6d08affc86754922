"""Checks of Python, PyTorch, cores and memory, and what a finding is."""

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

from curvflow.schemas.words import one_line

State = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name, such as `prefect.fastapi`.
        state: `warn` is worth a look, `FAIL` keeps something from working.
        message: the state of things, for people.
        remedy: what to do, if anything.
    """

    check: str
    state: State
    message: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the finding in the form of `curvflow doctor --json`."""
        return {
            "check": self.check,
            "state": self.state,
            "found": self.message,
            "remedy": self.remedy,
        }


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# Memory limits of a container, by the second and the first form of control groups.
LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
SCARCE = 2 << 30


def machine_findings(
    environment: Mapping[str, str] = os.environ, memory: int | None = None
) -> Iterator[Finding]:
    """Check the cores, the memory and the variables that set numbers of threads."""
    cores = _cores()
    yield Finding("cores", "ok", f"{cores} that this process may use")
    size = _memory() if memory is None else memory
    text = f"{size / 2**30:.1f} GiB that this process may use"
    if size < SCARCE:
        remedy = "Use few workers and small tiles, or a larger machine."
        yield Finding("memory", "warn", text, remedy)
    else:
        yield Finding("memory", "ok", text)
    yield _threads(environment, cores)


def _threads(environment: Mapping[str, str], cores: int) -> Finding:
    variables = {name: environment[name] for name in THREADS if environment.get(name)}
    if not variables:
        return Finding("threads", "ok", "no variable set; --threads decides")
    text = ", ".join(f"{name}={value}" for name, value in variables.items())
    values = [int(value) for value in variables.values() if value.isdigit()]
    if len(values) < len(variables) or max(values) > cores:
        remedy = f"Use numbers up to {cores}, or unset them; --threads decides."
        return Finding("threads", "warn", text, remedy)
    return Finding("threads", "ok", text)


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
    """Run a check for at most so many seconds; a hang or a crash is a finding."""
    findings: list[Finding] = []

    def carry_out() -> None:
        try:
            findings.extend(check())  # one by one: the next may hang
        # A library that is checked may raise anything: that is the finding.
        except Exception as error:
            words = one_line(f"{type(error).__name__}: {error}")
            findings.append(Finding(name, "FAIL", words, remedy))

    thread = threading.Thread(target=carry_out, name=f"doctor {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    so_far = list(findings)
    if thread.is_alive():
        text = f"no answer within {seconds:g} s"
        so_far.append(Finding(name, "FAIL", text, remedy))
    return so_far


def installed(package: str) -> str | None:
    """Return the version of an installed package; None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_below(version_: str, bound: str) -> bool:
    """Return whether a version is below a bound, `0.150.2` below `0.151`."""
    return _numbers(version_) < _numbers(bound)


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


OLDEST, TOO_NEW = "3.11", "3.14"


def python_findings(python: str | None = None) -> Iterator[Finding]:
    """Check the versions of Python and curvflow."""
    python = python or platform.python_version()
    known = is_below(python, TOO_NEW) and not is_below(python, OLDEST)
    remedy = f"Make an environment of Python {OLDEST}, or newer but below {TOO_NEW}."
    yield (
        Finding("python", "ok", python)
        if known
        else Finding("python", "warn", f"{python}, which is not tested", remedy)
    )
    curvflow = installed("curvflow")
    if curvflow is None:
        text, remedy = "not installed, but imported", "Run `pip install curvflow`."
        yield Finding("curvflow", "warn", text, remedy)
    else:
        yield Finding("curvflow", "ok", curvflow)


DRIVER = Path("/proc/driver/nvidia/version")


def torch_findings(driver: Path = DRIVER) -> Iterator[Finding]:
    """Check PyTorch's build and devices; `driver` exists where a GPU's driver does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from curvflow.tasks.machine import devices  # slow, so within the time limit

        machine = devices()
    build = "a CPU build" if machine.cuda is None else f"built for CUDA {machine.cuda}"
    yield Finding("torch", "ok", f"{machine.torch}, {build}")
    if machine.gpus:
        for index, name in enumerate(machine.gpus):
            yield Finding("torch.gpu", "ok", f"cuda:{index} is {name}")
    elif machine.cuda is None and driver.exists():
        remedy = "Install a CUDA build of PyTorch; see its install page."
        yield Finding("torch.gpu", "warn", "a GPU's driver, but no CUDA build", remedy)
    elif machine.cuda is not None and (driver.exists() or caught):
        words = one_line(caught[0].message) if caught else "none can be used"
        remedy = (
            f"Update the driver to one for CUDA {machine.cuda}, or install a PyTorch "
            "that is built for the driver's CUDA."
        )
        yield Finding("torch.gpu", "warn", words, remedy)
    else:
        yield Finding("torch.gpu", "ok", "none; everything runs on the CPU")
