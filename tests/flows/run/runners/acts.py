"""Kinds that do to their worker what a test asks for."""

import multiprocessing
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from curvflow.schemas import kinds
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Numbers, Outcome, Table
from curvflow.schemas.params import Params
from curvflow.tasks.registry import computes_each
from tests.flows import toys

# Against tests that hang, not a measure of anything.
PATIENCE = 180


class ActParams(Params):
    """What to do, and where to leave the number of the process."""

    what: str = "return"
    path: str = ""
    seconds: float = 0.0


ACT = Kind(
    name="test.act",
    version=1,
    summary="Does as asked.",
    params=ActParams,
    returns=Table,  # which need no PyTorch
    outputs=(Variable("pid", "process", (), "int64"),),
    vectorised=False,
)
THREADS = replace(
    ACT,
    name="test.threads",
    returns=Numbers,
    outputs=(Variable("threads", "threads of PyTorch", (), "int64"),),
)


def act(member, machine):
    """Do as asked."""
    p = member.params
    if p.path:
        Path(p.path).write_text(str(os.getpid()))
    if p.what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif p.what == "sleep":
        time.sleep(p.seconds)
    elif p.what == "start":
        child = multiprocessing.get_context("fork").Process(
            target=time.sleep, args=(9,)
        )
        child.start()
        child.terminate()
        child.join()
        with subprocess.Popen(["sleep", "9"]) as other:
            other.terminate()
        assert {child.exitcode, other.returncode} == {-signal.SIGTERM}
    elif p.what == "keep":
        until = time.monotonic() + PATIENCE
        while not machine.partial.is_due() and time.monotonic() < until:
            time.sleep(0.01)
        machine.partial.keep({"state": np.ones(1)})
    return Outcome({"pid": np.array(os.getpid())})


def threads(_member, _machine):
    """Tell on how many threads PyTorch computes."""
    import torch

    return Outcome({"threads": np.array(torch.get_num_threads())})


_for_good = ExitStack()


def register():
    """Make the kinds known in this process, and the toys with it."""
    _for_good.enter_context(toys.toy_kinds())
    for kind, function in ((ACT, act), (THREADS, threads)):
        kinds._added[kind.name] = kind
        computes_each(kind.name)(function)
