"""Which device computes."""

from __future__ import annotations

import torch

from curvflow.errors import RequestError
from curvflow.tasks.registry import Machine


def machine_for(device: str) -> Machine:
    """Turn what was asked for into a device that is there.

    Args:
        device: `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.

    Returns:
        The machine to compute on.

    Raises:
        RequestError: a GPU was asked for and there is none.
    """
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise RequestError(
            "--device: expected a CUDA device that PyTorch can use, got none. "
            "Use --device cpu, or install a CUDA build of PyTorch."
        )
    return Machine("cuda:0" if has_cuda and device != "cpu" else "cpu")
