"""How much main memory there is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def main_memory() -> int:
    """Return the bytes of main memory, or those that this group of processes may use.

    Returns:
        The bytes; 0 where the system does not tell.
    """
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    with suppress(OSError, ValueError):  # no such file, or the word `max`
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole
