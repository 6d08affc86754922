"""Preload of each worker of a local cluster.

A terminal sends SIGINT to all processes of the run, and a queue SIGTERM. Workers leave
both to the run, which stops them in its own way, so that no tile loses what it has.
What Dask and its dependencies log stays off the terminal of the run.
"""

from __future__ import annotations

import os
import signal

from curvflow.flows.run.runners.clients import silence

IGNORED = (signal.SIGINT, signal.SIGTERM)


def dask_setup(_worker: object) -> None:
    """Be silent, and do nothing on a wish to end; Dask calls this in the worker.

    What a tile starts heeds it as usual: a handler, unlike a signal that is ignored or
    blocked, is gone in a new program, and what is only forked sets it back.
    """
    silence()
    for number in IGNORED:
        signal.signal(number, _nothing)
        signal.siginterrupt(number, False)  # libraries may not expect it
    _unblock()
    os.register_at_fork(
        before=_block, after_in_parent=_unblock, after_in_child=_as_usual
    )


def _nothing(_number: int, _frame: object) -> None:
    pass


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)


def _as_usual() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock()
