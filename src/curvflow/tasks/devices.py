"""PyTorch's build, and the GPUs that it can use."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Devices:
    """What PyTorch can compute on.

    Attributes:
        torch: its version.
        cuda: version of CUDA it is built for; None for a CPU build.
        gpus: names, in the order of their numbers.
    """

    torch: str
    cuda: str | None
    gpus: tuple[str, ...]


def devices() -> Devices:
    """Return what PyTorch can compute on; it warns of a driver it cannot use."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = tuple(torch.cuda.get_device_name(index) for index in range(count))
    return Devices(str(torch.__version__), torch.version.cuda, names)
