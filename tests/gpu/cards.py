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


def assert_alike(actual, expected, *, rtol=1e-8, name="", beside=None):
    """Compare with what the CPU found, relative to the largest entry of it.

    Args:
        actual: found on the GPU.
        expected: found on the CPU.
        rtol: relative to the largest finite entry.
        name: for the message.
        beside: takes the place of `expected` as the scale: of an error that may be
            rounding alone, what it is the error of.
    """
    actual, expected, beside = (
        t.detach().cpu().double().numpy() if isinstance(t, torch.Tensor) else t
        for t in (actual, expected, expected if beside is None else beside)
    )
    finite = np.abs(beside[np.isfinite(beside)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=rtol * scale, err_msg=name
    )


def assert_variables_alike(found, expected, declared, *, rtol, name=""):
    """Compare the variables of a result with what the CPU found, by their declaration.

    Args:
        found: arrays by name, on the GPU.
        expected: arrays by name, on the CPU.
        declared: the variables; errors are compared by the size of their value.
        rtol: of floating-point numbers; all others are equal.
        name: for the message.
    """
    errors = {variable.name: variable.error_of for variable in declared}
    for variable, value in expected.items():
        told = f"{name}.{variable}"
        if value.dtype.kind == "f":
            beside = expected.get(errors[variable] or variable)
            assert_alike(found[variable], value, rtol=rtol, name=told, beside=beside)
        else:
            np.testing.assert_array_equal(found[variable], value, err_msg=told)
