"""What every worker of a local cluster loads before anything else.

A terminal sends SIGINT to all processes of the run, and a queue SIGTERM. Workers leave
both to the run, which tells them in its own way, so that no tile loses what it has.
"""

from __future__ import annotations

import signal

IGNORED = (signal.SIGINT, signal.SIGTERM)


def dask_setup(_worker: object) -> None:
    """Ignore the wish to end; Dask calls this in the worker's process."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
