"""Settings of the processor hold for as long as results are computed."""

import os
import subprocess
import sys

import pytest
import torch

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


FAULTS = """
import resource
import torch
from curvflow.tasks.machine import threads

def used():
    arrays = [torch.ones(1 << 18) for _ in range(64)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with threads(1):
    used()
    before = faults()
    for _ in range(4):
        used()
    print(faults() - before)
    with threads(1):
        pass
    used()
before = faults()
used()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator is that of glibc")
def test_freed_memory_is_kept_for_the_next_arrays_until_the_end():
    # As a nanny of Dask sets it for its workers.
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    code = [sys.executable, "-c", FAULTS]
    told = subprocess.run(code, env=environment, capture_output=True, check=True)
    pages = 64 * (1 << 20) // os.sysconf("SC_PAGE_SIZE")
    within, behind = map(int, told.stdout.split())
    assert within < pages / 4
    assert behind > pages / 2
