"""Commands in processes of their own, with a fault at a counted operation.

Faults come at the k-th operation of the store, not after a time, so that they come
there again. A heartbeat is an operation too and depends on the clock, so that is exact
for what ends within a beat, and nearly so for the rest.
"""

import errno
import os
import signal
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import curvflow.flows.graph.heartbeats as heartbeats
import curvflow.flows.graph.tiles as tiles
import curvflow.flows.run.compute as snapshots
import curvflow.flows.run.queue as queue
import curvflow.flows.run.runners.open as runners
import curvflow.flows.upkeep.kept_payloads as kept_payloads
import curvflow.flows.upkeep.proposal as proposal
import curvflow.stores.local as local
import curvflow.stores.log_store as log_store
from curvflow.cli.app import main
from curvflow.schemas.options import RunOptions
from curvflow.stores.bucket import Bucket
from curvflow.stores.files import Disk
from tests import forkserver

# Against processes that hang, not a measure of anything.
PATIENCE = 120
KEEP_EVERY = 0.02  # seconds between two states that a training keeps
WITHOUT_WORKER = 3.0  # seconds that a run waits for a scheduler or a worker
SIGNALS = {
    "kill": signal.SIGKILL,
    "pause": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}
REQUESTS = ("put", "create", "remove", "move")


@dataclass(frozen=True)
class Fault:
    """What befalls a process.

    Attributes:
        act: a signal's name in `SIGNALS`, `full` for a disk that is full from then on,
            or nothing.
        at: number of the operation at which it comes.
        host: of the machine that the process takes itself to be on; empty for this one.
        days: by which its clock is wrong, ahead and behind in turn.
        silence: seconds without a heartbeat after which it takes others for gone.
        width: nodes in a tile at most; 0 for as many as there is memory for.
    """

    act: str = ""
    at: int = 0
    host: str = ""
    days: float = 0.0
    silence: float = 1.0
    width: int = 2


class Command:
    """`curvflow` in a folder, forked from a process that has all loaded."""

    def __init__(self, folder: Path, *words: str, fault: Fault = Fault(), env=()):
        """Start it."""
        self.words, self.fault = words, fault
        self._said = folder / f"said-{os.urandom(4).hex()}"
        given = (str(folder), str(self._said), list(words), fault, dict(env))
        self._process = forkserver.running().Process(target=_be, args=given)
        self._process.start()
        self.pid = self._process.pid

    @property
    def said(self) -> str:
        """All that it has printed so far."""
        return self._said.read_text() if self._said.exists() else ""

    @property
    def code(self) -> int | None:
        """Its exit code, minus the signal that ended it; None while it lives."""
        return self._process.exitcode

    def is_paused(self) -> bool:
        """Return whether it stands still."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] in "Tt"

    def send(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.code is None:
            os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait for its end and return the exit code."""
        self._process.join(PATIENCE)
        if self.code is None:
            self.clear()
            raise TimeoutError(f"{' '.join(self.words)} hangs: {self.said[-500:]}")
        return self.code

    def clear(self) -> None:
        """End it if it lives."""
        if self.code is None:
            self._process.kill()
        self._process.join(PATIENCE)


def await_that(condition) -> None:
    """Wait until a condition holds."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > patience:
            raise TimeoutError("it never came")
        time.sleep(0.01)


def _be(folder, said, words, fault, env) -> None:
    os.chdir(folder)
    number = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(number, 1)
    os.dup2(number, 2)
    os.environ.update(env)
    arrange(fault)
    sys.argv = ["curvflow", *words]
    main()


def arrange(fault):
    """Have a fault come in this process."""
    if width := fault.width:
        tiles.MAX_WIDTH = queue.NODE_BY_NODE_WIDTH = tiles.NODE_BY_NODE_WIDTH = width
    runners.PATIENCE = WITHOUT_WORKER
    snapshots.Snapshots.__init__.__kwdefaults__["every"] = KEEP_EVERY
    RunOptions.model_fields["silence"].default = fault.silence
    RunOptions.model_rebuild(force=True)
    heartbeats.SILENCE = fault.silence
    heartbeats.HeartbeatMonitor.__init__.__kwdefaults__["silence"] = fault.silence
    kept_payloads.SILENCE = fault.silence
    proposal.LEAST_GRACE = max(fault.silence, 1.0)
    if fault.host:
        _move_to(fault.host)
    if fault.days:
        _Wild.days = fault.days
        log_store.datetime = _Wild
    if fault.act:
        counter = _Counter(fault)
        local.Disk = lambda: _Struck(counter)
        for name in REQUESTS:
            setattr(Bucket, name, counter.counted(getattr(Bucket, name)))


def _move_to(host: str) -> None:
    here = heartbeats._identity

    def there():
        return here() | {"host": host, "boot": f"{host}'s"}

    heartbeats._identity = there


class _Wild(datetime):
    """A clock that is stepped back and forth."""

    days = 1.0

    @classmethod
    def now(cls, tz=None):
        cls.days = -cls.days
        return datetime.fromtimestamp(time.time() + 86400 * cls.days, tz)


class _Counter:
    """Counts operations, and acts at one of them."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self._count = fault, 0

    @property
    def is_full(self) -> bool:
        """Return whether the disk has no more room."""
        return self._fault.act == "full" and self._count >= self._fault.at

    @property
    def is_last(self) -> bool:
        """Return whether the process is killed at the next operation."""
        return self._fault.act == "kill" and self._count + 1 == self._fault.at

    def count(self) -> None:
        """Count one operation."""
        self._count += 1
        if self._count == self._fault.at and self._fault.act in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self._fault.act])

    def counted(self, function):
        """Return a function that counts as an operation."""

        def wrapped(*arguments, **options):
            self.count()
            return function(*arguments, **options)

        return wrapped


class _Struck(Disk):
    """A disk whose operations are counted."""

    def __init__(self, counter: _Counter) -> None:
        self._counter = counter

    def __getattribute__(self, name):
        if name in vars(Disk) and name not in ("write", "append"):
            self._counter.count()
        return super().__getattribute__(name)

    def write(self, path, data):
        if self._counter.is_last:
            super().write(path, data[: len(data) // 2])
        self._counter.count()
        self._room(lambda: super(_Struck, self).write(path, data[: len(data) // 2]))
        super().write(path, data)

    def append(self, path, data):
        if self._counter.is_last:
            super().append(path, data[: len(data) // 2])
        self._counter.count()
        self._room(lambda: super(_Struck, self).append(path, data[: len(data) // 2]))
        super().append(path, data)

    def _room(self, half) -> None:
        if self._counter.is_full:
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
