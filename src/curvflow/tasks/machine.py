"""Which device computes, and on how many threads."""

from __future__ import annotations

import torch

from curvflow.errors import RequestError
from curvflow.tasks.registry import Machine


def machine_for(device: str, num_threads: int) -> Machine:
    """Turn what was asked for into a device that is there, and set the threads.

    Args:
        device: `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.
        num_threads: threads of PyTorch's CPU operations in this process.

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
    torch.set_num_threads(num_threads)
    return Machine("cuda:0" if has_cuda and device != "cpu" else "cpu")
