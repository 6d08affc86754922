"""What every worker of a local cluster loads before anything else.

A terminal sends SIGINT to all processes of the run. Workers leave it to the run, which
tells them in its own way, so that no tile loses what it has.
"""

from __future__ import annotations

import signal


def dask_setup(_worker: object) -> None:
    """Ignore the terminal's wish to end; Dask calls this in the worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
