"""Settings of the processor hold for as long as results are computed."""

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
