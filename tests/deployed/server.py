"""A real Prefect server, work pool and worker, for as long as the tests run.

Nothing is written to the environment of the tests themselves: what is to find the
server takes `Server.environment`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.deployed.warm import command

# Against tests that hang, not a measure of anything.
PATIENCE = 600
BIN = Path(sys.executable).parent
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "PREFECT_API_REQUEST_TIMEOUT": str(PATIENCE),
    "PREFECT_CLI_COLORS": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
    "PREFECT_WORKER_QUERY_SECONDS": "1",
}


class Server:
    """A server that answers, and what its clients need to find it.

    Attributes:
        api: its address.
        home: folder of its database and its clients' settings.
        environment: for a process that is to find it.
        warm: path of the socket by which commands are forked; see `warm.py`.
    """

    def __init__(self, home, port):
        self.home, self.api = home, f"http://127.0.0.1:{port}/api"
        known = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        own = {"PREFECT_HOME": str(home), "PREFECT_API_URL": self.api}
        self.environment = known | SETTINGS | own
        self.warm = home / "warm"

    def get(self, path):
        """Return what the API answers to GET."""
        return self._asked(urllib.request.Request(self.api + path))

    def post(self, path, **body):
        """Return what the API answers to POST."""
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        return self._asked(urllib.request.Request(self.api + path, data, kind))

    def _asked(self, request):
        return until(lambda: self._answer(request), every=0.5)[0]

    def _answer(self, request):
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return (json.loads(answer.read() or b"null"),)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # its database is busy: ask again, as its clients do
                return None
            raise RefusedError(error.code, error.read().decode()) from error

    def curvflow(self, *arguments, cwd, cold=False, **environment):
        """Run `curvflow ARGUMENTS` to its end, knowing the server.

        Args:
            arguments: of the command.
            cwd: folder to be in.
            cold: start Python for it, in place of a fork.
            environment: variables to be set.
        """
        words = [BIN / "curvflow"] if cold else command(self.warm, "curvflow")
        return self._ran(*words, *arguments, cwd=cwd, **environment)

    def prefect(self, *arguments, cwd=None, **environment):
        """Run `prefect ARGUMENTS` to its end, knowing the server."""
        words = command(self.warm, "prefect")
        return self._ran(*words, *arguments, cwd=cwd, **environment)

    def python(self, code, *arguments, cwd=None, cold=False, **environment):
        """Run a piece of Python to its end, knowing the server."""
        words = [BIN / "python"] if cold else command(self.warm, "python")
        return self._ran(*words, "-c", code, *arguments, cwd=cwd, **environment)

    def _ran(self, *words, cwd, **environment):
        return subprocess.run(
            list(map(str, words)),
            capture_output=True,
            text=True,
            cwd=cwd or self.home,
            env=self.environment | environment,
            timeout=PATIENCE,
            check=False,
        )

    def flow_run(self, identity):
        """Return a flow run as the API tells of it."""
        return self.get(f"/flow_runs/{identity}")

    def flow_runs(self, deployment):
        """Return the flow runs of a deployment, the first scheduled first."""
        wanted = {"deployments": {"id": {"any_": [deployment]}}}
        ordered = {"sort": "EXPECTED_START_TIME_ASC"}
        return self.post("/flow_runs/filter", **wanted, **ordered)

    def ended(self, identity):
        """Wait for the end of a flow run and return it."""
        return self.run_in(identity, FINAL)

    def run_in(self, identity, types):
        """Wait until a flow run's state is of one of some types and return it."""
        return until(
            lambda: (run := self.flow_run(identity))["state_type"] in types and run,
            every=0.2,
        )


class RefusedError(Exception):
    """The API answered with an error."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


def until(condition, *, every=0.05):
    """Wait until something is true of the world and return it."""
    patience = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < patience, "it never came"
        time.sleep(every)
    return found


def free_port():
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def serving(home):
    """Start a Prefect server on a port of its own; it ends with the block.

    Args:
        home: folder for its database.

    Yields:
        The server.
    """
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = Server(home, port)
    at = ["--host", "127.0.0.1", "--port", str(port)]
    with started(server, home / "server.log", "server", "start", *at) as process:
        until(lambda: process.poll() is not None or healthy(server), every=0.2)
        assert process.poll() is None, (home / "server.log").read_text()
        yield server


def healthy(server):
    """Return whether a server answers."""
    try:
        return server.get("/health") is True
    except OSError:
        return False


@contextmanager
def started(server, log, *arguments, cwd=None):
    """Start `prefect ARGUMENTS`; it ends with the block, and what it started too.

    Args:
        server: known to the process.
        log: path of what it says.
        arguments: of `prefect`.
        cwd: folder to start in.

    Yields:
        The process.
    """
    with log.open("w") as said:
        process = subprocess.Popen(
            [BIN / "prefect", *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=server.environment,
            cwd=cwd or server.home,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process):
    """End a process that leads a session, gently first, with all it started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
