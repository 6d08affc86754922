"""Learning coefficients of a training loop in a separate process, one at a time.

The process is a new program, given by a file what it computes; it knows nothing of
the loop, and ends when that does. So a script needs no guard around what it runs, and
neither the loop's random streams nor its device are touched.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import IO, Any, NamedTuple, cast

from curvflow.errors import InputError
from curvflow.flows.monitor.files import Estimate, Requests, Weights
from curvflow.tasks.monitor.coefficients import CoefficientRequest, nothing

# Seconds from one look at whether the loop is still there to the next.
WATCH = 1.0
PROGRAM = "from curvflow.flows.monitor.background import main; main()"
_logger = logging.getLogger("curvflow")


class _Running(NamedTuple):
    """The process, and the files that it writes."""

    step: int
    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    errors: IO[bytes]


class Background(Requests):
    """Requests of which the first is answered in a process."""

    def __init__(
        self,
        request: Callable[[Weights], bytes],
        folder: Path | None,
        identity: Mapping[str, Any],
    ) -> None:
        """Take no requests yet.

        Args:
            request: from weights to what the process is given, as `packed` returns it;
                made when it is its turn, for it holds all data.
            folder: keeps the weights; None keeps none.
            identity: of the monitor, kept with them.
        """
        super().__init__(folder, identity)
        self._request = request
        self._waiting: deque[int] = deque()
        self._running: _Running | None = None

    def add(self, step: int, weights: Weights) -> None:
        """Take a request behind the others."""
        super().add(step, weights)
        self._waiting.append(step)
        self._start_next()

    def cut(self, step: int) -> None:
        """Give up the requests from a step on."""
        if self._running and self._running.step >= step:
            self._stop()
        self._waiting = deque(each for each in self._waiting if each < step)
        super().cut(step)
        self._start_next()

    def answers(self, *, wait: bool = False) -> Iterator[Estimate]:
        """Yield the estimates that are there, or wait for all.

        A process that a signal ends has said nothing about its request, whose weights
        are kept: it is made again when all are waited for, or by the next program.
        """
        if wait:
            self._ask_again()
        while (running := self._running) is not None:
            if wait:
                running.process.wait()
            if (code := running.process.poll()) is None:
                return
            estimate = None if code < 0 else Estimate(running.step, _numbers(running))
            self._stop()
            self._start_next()
            if estimate is None:
                _logger.warning(_lost(running.step, -code))
            else:
                yield estimate

    def _ask_again(self) -> None:
        """Put requests whose process was ended behind the others."""
        asked = {*self._waiting, self._running.step if self._running else None}
        self._waiting.extend(sorted(self.weights.keys() - asked))
        self._start_next()

    def _start_next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        step = self._waiting[0]
        request = self._request(self.weights[step])
        self._waiting.popleft()
        answer, errors = (
            cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115  kept open
            for _ in range(2)
        )
        with tempfile.TemporaryFile() as given:
            given.write(request)
            given.seek(0)
            process = subprocess.Popen(
                # Without the folder it is started in, where any name may stand.
                [sys.executable, "-P", "-c", PROGRAM, str(os.getpid())],
                stdin=given,
                stdout=answer,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths())},
                # Signals to the loop's group, as of Ctrl-C, are for the loop.
                start_new_session=True,
            )
        self._running = _Running(step, process, answer, errors)
        # Also when the monitor is given up, or the program ends.
        self._end = weakref.finalize(self, _end, self._running)

    def _stop(self) -> None:
        """Let go of the process, at work or not."""
        if self._running is not None:
            self._end()
            self._running = None


def packed(request: CoefficientRequest) -> bytes:
    """Return a request as a process can be given it.

    Args:
        request: what to estimate; functions of a script are taken along.

    Raises:
        InputError: something in it cannot be taken along.
    """
    buffer = io.BytesIO()
    takes_scripts = find_spec("cloudpickle") is not None
    by = import_module("cloudpickle").Pickler if takes_scripts else _Importable
    try:
        by(buffer).dump(request)
        return buffer.getvalue()
    except InputError:
        raise
    except Exception as error:  # whatever an object of the user's raises
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InputError(
            "llc_in: expected a module, loss and data that another process can be "
            f"given, got {reason}. Take llc_in loop."
        ) from error


class _Importable(pickle.Pickler):
    """Pickles imported objects by name, and refuses names that only a script has."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse functions and classes of a script.

        Args:
            obj: met on the way.

        Returns:
            NotImplemented: the others are pickled as ever.

        Raises:
            InputError: the process would look for it in a script of its own.
        """
        is_named = isinstance(obj, type | FunctionType)
        if is_named and obj.__module__ in ("__main__", "__mp_main__"):
            raise InputError(
                "llc_in: expected a module, loss and data from modules that can be "
                f"imported, got {obj.__qualname__} of a script. Install cloudpickle, "
                "move it to a module, or take llc_in loop."
            )
        return NotImplemented


def main() -> None:
    """Answer the request on standard input, for as long as the loop lives."""
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a module prints is no answer
    numbers = pickle.load(sys.stdin.buffer).estimate()
    with out:
        out.write(json.dumps(numbers).encode())


def _end(running: _Running) -> None:
    running.process.kill()
    running.process.wait()
    running.answer.close()
    running.errors.close()


def _end_with(parent: int) -> None:
    while os.getppid() == parent or sys.platform == "win32":
        time.sleep(WATCH)
    os._exit(1)


def _paths() -> list[str]:
    """Return where this program finds its modules."""
    return [path or os.getcwd() for path in sys.path]  # noqa: PTH109  no path of ours


def _lost(step: int, number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return (
        f"llc at step {step}: its process was ended by {known.get(number, number)}. "
        "Its weights are kept: wait() estimates it again."
    )


def _numbers(running: _Running) -> Mapping[str, Any]:
    running.answer.seek(0)
    text = running.answer.read()
    if running.process.returncode == 0:
        return cast("Mapping[str, Any]", json.loads(text))
    running.errors.seek(0)
    lines = running.errors.read().decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"exit code {running.process.returncode}"
    return nothing(f"the process ended: {last}")
