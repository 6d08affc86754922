"""Runs of the command, and clusters for them, as processes that may be killed."""

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import curvflow.flows.graph.tiles as tiles
import curvflow.flows.run.compute as snapshots
import curvflow.flows.run.queue as queue
import curvflow.flows.run.runners.open as runners
import curvflow.flows.run.runners.preflight as preflight
from curvflow.cli.app import main
from tests import forkserver
from tests.flows.run.runners.acts import PATIENCE
from tests.flows.run.runners.clusters import until


class Process:
    """A process in a session of its own, with all that it starts."""

    def __init__(self, target, *arguments):
        """Start a function of a module."""
        # Not as a daemon, which may start no workers of its own.
        self._process = forkserver.running().Process(target=target, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def kill(self, number=signal.SIGKILL):
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    def interrupt(self, number=signal.SIGINT):
        """Send a signal to all of its session, as a terminal does."""
        os.killpg(self.pid, number)

    def ended(self):
        """Wait for its end; its exit code, or minus the signal that killed it."""
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, "it hangs"
        return self._process.exitcode

    def family(self):
        """Return the numbers of all living processes of its session."""
        return [pid for pid in _living() if _session(pid) == self.pid]

    def others(self):
        """Return those of them that it has started."""
        return [pid for pid in self.family() if pid != self.pid]

    def clear(self):
        """End whatever is left."""
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.join(PATIENCE)


class Command(Process):
    """`curvflow`, run in a folder."""

    def __init__(self, folder, *arguments, width=2, environment=(), **settings):
        """Start it.

        Args:
            folder: to be in.
            arguments: of the command.
            width: see `_set`.
            environment: variables to be set.
            settings: see `_set`.
        """
        self._said = Path(folder) / f"said-{os.urandom(4).hex()}"
        given = [str(one) for one in arguments]
        settings["width"] = width
        super().__init__(
            _curvflow, folder, self._said, given, dict(environment), settings
        )

    @property
    def out(self):
        """What it has printed so far."""
        return Path(f"{self._said}.out").read_text()

    @property
    def err(self):
        """What it has complained of so far."""
        return Path(f"{self._said}.err").read_text()

    def answer(self, code=0):
        """Wait for its end and return the JSON it printed."""
        assert self.ended() == code, self.err
        return json.loads(self.out)


def _curvflow(folder, said, arguments, environment, settings):
    os.setsid()
    _speak_to(f"{said}.out", f"{said}.err")
    os.chdir(folder)
    os.environ.update(environment)
    _set(**settings)
    sys.argv = ["curvflow", *arguments]
    main()


def _set(*, width, every=3600.0, patience=30.0, answer=60.0, forks=False):
    """Set what is no option of the command.

    Args:
        width: nodes in a tile at most.
        every: seconds between two states that a tile keeps.
        patience: seconds without a worker after which there is no hope.
        answer: seconds that workers have to answer before the first tile.
        forks: fork workers of its own from a process that has all loaded. They are
            of another session, so this is not for tests of how they end.
    """
    if forks:
        import distributed.utils

        from curvflow.flows.run.runners import local

        local.SETTINGS["distributed.worker.multiprocessing-method"] = "forkserver"
        distributed.utils._forkserver_preload_set = True  # the process is there
    tiles.MAX_WIDTH = queue.NODE_BY_NODE_WIDTH = tiles.NODE_BY_NODE_WIDTH = width
    snapshots.Snapshots.__init__.__kwdefaults__["every"] = every
    runners.PATIENCE = patience
    preflight.ANSWER_WITHIN = answer


def _dask(folder, arguments, environment):
    import dask.config
    from dask.__main__ import main as dask_main

    from curvflow.flows.run.runners.local import UNSEEN

    # They wait for most of the time that the tests take.
    dask.config.set({**UNSEEN, "distributed.worker.profile.enabled": False})
    os.setsid()
    os.chdir(folder)
    _speak_to(os.devnull, os.devnull)
    os.environ.update(environment)
    sys.argv = ["dask", *arguments]
    dask_main()


def _speak_to(*paths):
    for number, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)


class Site:
    """A Dask scheduler and workers, each a process of its own."""

    def __init__(self, folder, environment=()):
        """Start the scheduler; see `site`."""
        self._file = Path(folder) / f"scheduler-{os.urandom(4).hex()}.json"
        self._environment = dict(environment)
        self.scheduler = self._scheduler(0)
        self.workers = []

    def _scheduler(self, port):
        self._file.unlink(missing_ok=True)
        where = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        where += ("--scheduler-file", str(self._file))
        started = self._start("scheduler", *where)
        until(lambda: self._file.exists() and self._file.read_text())
        self.address = json.loads(self._file.read_text())["address"]
        return started

    def _start(self, *arguments, cwd="."):
        return Process(_dask, cwd, list(map(str, arguments)), self._environment)

    def worker(self, *options, cwd="."):
        """Start a worker, which has no nanny: when it is killed it is no more."""
        usual = ("--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        threads = () if "--nthreads" in options else ("--nthreads", 1)
        started = self._start(
            "worker", self.address, *usual, *threads, *options, cwd=cwd
        )
        self.workers.append(started)
        return started

    def come_back(self, workers):
        """Start scheduler and workers again, where they were."""
        self.clear()
        self.scheduler = self._scheduler(self.address.rpartition(":")[2])
        self.workers = []
        for _ in range(workers):
            self.worker()

    def ask(self, question):
        """Return what a client of the scheduler answers."""
        from curvflow.flows.run.runners.clients import remote_client

        with remote_client(self.address) as client:
            return question(client)

    def await_workers(self, number):
        """Wait until so many workers are there."""
        self.ask(lambda client: client.wait_for_workers(number, timeout=PATIENCE))
        return self

    def clear(self):
        """End all of it."""
        for process in (self.scheduler, *self.workers):
            process.clear()


@contextmanager
def site(folder, workers, environment=()):
    """Run a scheduler with some workers until the block ends."""
    one = Site(folder, environment)
    try:
        for _ in range(workers):
            one.worker()
        yield one.await_workers(workers) if workers else one
    finally:
        one.clear()


def _living():
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _session(pid):
    """Return the session of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])
