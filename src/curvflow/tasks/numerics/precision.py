"""Full precision of products, whatever the device would rather do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32 off for matrix products and convolutions within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
