"""Settings of the processor hold for as long as results are computed."""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from curvflow.tasks import machine
from curvflow.tasks.machine import threads


def half(dtype):
    return float(torch.tensor(torch.finfo(dtype).tiny, dtype=dtype) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_below_the_normal_ones_are_zero_meanwhile(dtype):
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush them")
    assert half(dtype) > 0
    with threads(1):
        assert half(dtype) == 0
        with threads(1):
            assert half(dtype) == 0
        assert half(dtype) == 0
    assert half(dtype) > 0


MEMORY = """
import os
import torch
from curvflow.tasks.machine import threads

def used():
    arrays = [torch.ones(1 << 18) for _ in range(64)]

def held():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

with threads(1):
    used()
before = held()
with threads(1):
    used()
    within = held() - before
    with threads(1):
        pass
    behind_another = held() - before
print(within, behind_another, held() - before)
"""

# What the arrays above take together.
USED = 64 << 20

# As a nanny of Dask sets it for its workers.
NANNY = {"MALLOC_TRIM_THRESHOLD_": "65536"}


def kept(settings):
    """Return the memory that stays with a process in the block, and behind it."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    code = [sys.executable, "-c", MEMORY]
    told = subprocess.run(
        code, env={**ours, **settings}, capture_output=True, check=False, text=True
    )
    assert told.returncode == 0, told.stderr
    return tuple(map(int, told.stdout.split()))


of_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="the allocator is not that of glibc",
)


@of_glibc
@pytest.mark.parametrize("settings", [{}, NANNY])
def test_freed_memory_is_kept_for_the_next_arrays_until_the_end(settings):
    within, behind_another, behind = kept(settings)
    assert min(within, behind_another) > 0.75 * USED
    assert behind < USED / 4


@pytest.fixture
def calls(monkeypatch):
    """Calls of an allocator that is as glibc's."""
    made = []
    libc = SimpleNamespace(
        mallopt=lambda *given: made.append(given),
        malloc_trim=lambda pad: made.append(pad),
    )
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: libc)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    return made


@pytest.mark.parametrize(
    ("settings", "mapped", "trim"), [({}, 32 << 20, 64 << 20), (NANNY, 131072, 65536)]
)
def test_settings_of_malloc_are_put_back_once(
    monkeypatch, calls, settings, mapped, trim
):
    monkeypatch.setattr(machine, "_settings", lambda: settings)
    with threads(1):
        with threads(1):
            pass
        assert calls == 2 * [(-3, 32 << 20), (-1, 1 << 30)]
    assert calls[4:] == [(-3, mapped), (-1, trim), 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {**NANNY, "MALLOC_MMAP_THRESHOLD_": "65536"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"},
    ],
)
def test_settings_of_malloc_that_the_user_has_stay(monkeypatch, calls, settings):
    monkeypatch.setattr(machine, "_settings", lambda: settings)
    with threads(1):
        pass
    assert calls == []


@of_glibc
def test_settings_of_malloc_are_those_of_the_environment(monkeypatch):
    for name in machine.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(*next(iter(NANNY.items())))
    assert machine._settings() == NANNY
