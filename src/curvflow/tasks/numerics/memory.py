"""Memory for vectors as long as a network has parameters."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def unwritten(*shape: int, like: Tensor) -> Tensor:
    """Return a tensor whose entries are yet to be written.

    On a CPU it is NumPy's, which asks the system for large pages: to write 45 MB for
    the first time then took 11 ms in place of 37.

    Args:
        *shape: of the tensor.
        like: whose precision and device it has.

    Returns:
        The tensor.
    """
    if like.device.type != "cpu" or like.dtype == torch.bfloat16:  # NumPy has none
        return like.new_empty(shape)
    found: Tensor = torch.from_numpy(np.empty(shape, like.new_empty(0).numpy().dtype))
    return found
