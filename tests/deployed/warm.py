"""Commands in processes that have imported Prefect and PyTorch before they begin.

    python -S -E tests/deployed/warm.py SOCKET PROGRAM ARGUMENT...

does what `PROGRAM ARGUMENT...` does, in a fork of a process that `warmed` has started:
with the caller's folder, environment, input and output. Signals to the caller reach
the fork, its exit code becomes the caller's, and it is killed if the caller is.
Programs are `curvflow`, `prefect`, `python -c CODE` and `prefect.engine`.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

LOADED = """
    curvflow.cli.app curvflow.cli.commands.run curvflow.flows.deployed.collect
    curvflow.flows.deployed.deploy curvflow.flows.deployed.observed
    curvflow.flows.deployed.observer curvflow.flows.deployed.study
    curvflow.flows.doctor.examine curvflow.stores.zarr_payloads
    curvflow.tasks.aggregate.summary curvflow.tasks.data.xor curvflow.tasks.machine
    curvflow.tasks.probes.norms curvflow.tasks.train prefect.cli.deploy
    prefect.cli.deployment prefect.cli.work_pool prefect.engine prefect.flow_engine
    torch._dynamo
"""
ROOT = Path(__file__).parents[2]
PATIENCE = 600  # against tests that hang
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def call(path, *arguments):
    """Have a fork run a command in place of this process, and return its exit code."""
    wire = _connected(path)
    for number in SIGNALS:
        signal.signal(number, lambda number, _: wire.send(bytes([number])))
    request = json.dumps([arguments, str(Path.cwd()), dict(os.environ)]).encode()
    socket.send_fds(wire, [len(request).to_bytes(8, "little")], [0, 1, 2])
    wire.sendall(request)
    answer = wire.recv(4)
    return int.from_bytes(answer, "little", signed=True) if answer else 1


def _connected(path):
    patience = time.monotonic() + PATIENCE
    while True:
        wire = socket.socket(socket.AF_UNIX)
        try:
            wire.connect(path)
        except OSError:  # it is still loading
            if time.monotonic() > patience:
                raise
            time.sleep(0.05)
        else:
            return wire


def serve(path):
    """Fork for whoever calls; returns in the fork, with the function to be run."""
    from importlib import import_module

    for name in LOADED.split():
        import_module(name)
    import_module("curvflow.schemas.kinds").all_kinds()
    app = import_module("curvflow.cli.app")
    for name in app.COMMANDS:
        app.command_line(name)
    _read_code()
    gc.freeze()  # else each fork copies what its collector looks at
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        wire, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _asked(wire)
        wire.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _read_code():
    """Read the code of the kinds of most runs."""
    sys.path.insert(0, str(ROOT))
    try:
        from tests.code_read import read_code
    finally:
        sys.path.remove(str(ROOT))
    read_code()


def _asked(wire):
    size, files, _, _ = socket.recv_fds(wire, 8, 3)
    request, size = b"", int.from_bytes(size, "little")
    while len(request) < size:
        request += wire.recv(size - len(request))
    if (child := os.fork()) != 0:
        for file in files:
            os.close(file)
        _keep(child, wire)
    wire.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    arguments, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return lambda: _run(*arguments)


def _keep(child, wire):
    """Pass signals on to a process, and its exit code back."""
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([ended, wire], [], [])
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with suppress(OSError):
                wire.send(code.to_bytes(4, "little", signed=True))
            os._exit(0)
        numbers = wire.recv(16)
        for number in numbers or [signal.SIGKILL]:
            os.kill(child, number)
        if not numbers:
            os.waitpid(child, 0)
            os._exit(0)


def _end(run):
    """Run a program and end as Python does, but for freeing what this process holds."""
    try:
        run()
        code = 0
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


def _run(program, *arguments):
    """Be a program whose modules are there already."""
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    from curvflow.flows.deployed.quiet import hush

    sys.path[0], sys.argv = "", [program, *arguments]
    if program in ("curvflow", "python"):  # imports the package before Prefect
        hush()
    refresh_global_settings_context()
    setup_logging(incremental=False)
    PROGRAMS[program](*arguments)


def _curvflow(*_):
    from curvflow.cli.app import main

    main()


def _prefect(*_):
    from prefect.cli import app

    app()


def _python(_, code, *arguments):
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def _engine(*_):
    from runpy import run_module

    run_module("prefect.engine", run_name="__main__", alter_sys=True)


PROGRAMS = {
    "curvflow": _curvflow,
    "prefect": _prefect,
    "python": _python,
    "prefect.engine": _engine,
}


def command(path, program):
    """Return the first words of a command line that runs a program in a fork."""
    return [sys.executable, "-S", "-E", __file__, str(path), program]


@contextmanager
def warmed(path, environment):
    """Load the modules in a process to fork; it ends with the block.

    Args:
        path: of the socket by which it is called.
        environment: in which modules are imported.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, path],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        code = call(*sys.argv[1:])
        if code < 0:  # killed by a signal, as that process was
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        sys.exit(code)
    _end(serve(sys.argv[1]))
