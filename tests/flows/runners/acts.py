"""A kind that does to its worker what a test asks for."""

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from curvflow.schemas import kinds
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Numbers, Outcome
from curvflow.schemas.params import Params
from curvflow.schemas.variables import Variable
from curvflow.tasks.registry import computes_each
from tests.flows import toys

# Against tests that hang, not a measure of anything.
PATIENCE = 60


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
    returns=Numbers,
    outputs=(
        Variable("pid", "process", (), "int64"),
        Variable("threads", "threads of PyTorch", (), "int64"),
    ),
    vectorised=False,
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
    elif p.what == "keep":
        until = time.monotonic() + PATIENCE
        while not machine.partial.is_due() and time.monotonic() < until:
            time.sleep(0.01)
        machine.partial.keep({"state": np.ones(1)})
    return outcome()


def outcome():
    import torch

    threads = np.array(torch.get_num_threads())
    return Outcome({"pid": np.array(os.getpid()), "threads": threads})


_for_good = ExitStack()


def register():
    """Make the kind known in this process, and the toys with it."""
    _for_good.enter_context(toys.toy_kinds())
    kinds._added["test.act"] = ACT
    computes_each("test.act")(act)
