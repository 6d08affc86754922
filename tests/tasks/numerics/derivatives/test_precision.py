"""Full precision within a block."""

import torch

from curvflow.tasks.numerics import full_precision


def test_reduced_precision_is_off_inside_and_back_outside():
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
