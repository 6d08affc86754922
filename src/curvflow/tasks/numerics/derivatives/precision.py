"""Full precision of products, and routes through torch that have all derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32 off for matrix products and convolutions within the block.

    Examples:
        >>> from curvflow.tasks.numerics import full_precision
        >>> import torch
        >>> with full_precision():
        ...     torch.get_float32_matmul_precision()
        'highest'
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def differentiable() -> Iterator[None]:
    """Take attention's plain routes, and switch TF32 off, within the block.

    Fused attention has no second and no forward derivatives, nor has the fast path of
    transformer layers, which torch takes where it sees no gradient wanted.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with full_precision(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
