"""The GPU of these tests, and how its numbers are compared with the CPU's.

Both add in orders of their own, so no bits are compared. All random numbers are drawn
on the CPU, so the same are used on both.
"""

import numpy as np
import pytest
import torch

from curvflow.tasks.registry import Machine

DEVICE = torch.device("cuda:0")
GPU = Machine(str(DEVICE))
# Each test may run in a process of its own: the first call of a kernel takes long.
on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.spread,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def assert_alike(actual, expected, *, rtol=1e-8, name=""):
    """Compare with what the CPU found, relative to the largest entry of it."""
    actual, expected = (
        t.detach().cpu().double().numpy() if isinstance(t, torch.Tensor) else t
        for t in (actual, expected)
    )
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=rtol * scale, err_msg=name
    )
