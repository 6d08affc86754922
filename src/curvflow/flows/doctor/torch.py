"""PyTorch, and the GPUs it can use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from curvflow.flows.doctor.finding import Finding

DRIVER = Path("/proc/driver/nvidia/version")


def torch_findings(driver: Path = DRIVER) -> Iterator[Finding]:
    """Look at PyTorch's build and its devices.

    Args:
        driver: a file that is there where a GPU's driver is.

    Yields:
        What was found.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        from curvflow.tasks.machine import devices  # slow, so within the time limit

        found = devices()
    build = "a CPU build" if found.cuda is None else f"built for CUDA {found.cuda}"
    yield Finding("torch", "ok", f"{found.torch}, {build}")
    if found.gpus:
        for index, name in enumerate(found.gpus):
            yield Finding("torch.gpu", "ok", f"cuda:{index} is {name}")
    elif found.cuda is None and driver.exists():
        remedy = "Install a CUDA build of PyTorch, as its install page says."
        yield Finding("torch.gpu", "warn", "a GPU's driver, but no CUDA build", remedy)
    elif found.cuda is not None and (driver.exists() or told):
        words = " ".join(str(told[0].message).split()) if told else "none can be used"
        remedy = (
            f"Update the driver to one for CUDA {found.cuda}, or install a PyTorch "
            "that is built for the driver's CUDA."
        )
        yield Finding("torch.gpu", "warn", words, remedy)
    else:
        yield Finding("torch.gpu", "ok", "none; everything runs on the CPU")
