"""A server of the page on loopback, which rewrites it while a run goes on."""

from __future__ import annotations

import json
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast

from curvflow.errors import CurvflowError, RequestError
from curvflow.flows.report.gather import gather, open_basis
from curvflow.flows.report.render import default_name, policy_of, render
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.results.outputs import replace_file
from curvflow.schemas.words import printable
from curvflow.stores.base import Store

LOOPBACK = "127.0.0.1"
LOOK_EVERY = 1.0  # seconds between two readings of the log
# Writing a page takes at most this share of the time, however large the study is.
SHARE = 0.2


@dataclass
class ServedPage:
    """The current page.

    Attributes:
        version: random; another after each writing.
        page: HTML.
        policy: Content-Security-Policy, also sent as a header.
        stale: the reason why it could not be rewritten; empty if up to date.
    """

    version: str = ""
    page: bytes = b""
    policy: str = ""
    stale: str = ""


def serve_report(
    request: ReportRequest,
    output: Path | None = None,
    *,
    port: int = 0,
    on_start: Callable[[str, Path], Any],
    on_trouble: Callable[[str], Any],
) -> None:
    """Serve the page of a study until Ctrl-C or SIGTERM.

    Whenever the log of the store has changed, the file is rewritten, and open pages
    reload. While it cannot be written, they keep their content and show the reason.

    Args:
        request: the study and its options.
        output: the file, see `write_report`.
        port: of this machine's loopback; 0 takes a free one.
        on_start: called once with the page's address and file.
        on_trouble: called with a line for what cannot be read or written on the way.

    Raises:
        RequestError: the study cannot be read, or the port is not free.
        StoreError: the store cannot be read, or the file not be written.
    """
    served = ServedPage()
    writer = _Writer(request, output, served, on_trouble)
    file = writer.write()
    # Ctrl-C may come while a page is being written too; the file is never half.
    with _listening(served, port) as address, suppress(KeyboardInterrupt):
        on_start(address, file)
        writer.keep_up()


class _Writer:
    """Writes the file and the served page, and reports each trouble once."""

    _store: Store
    _number: int

    def __init__(
        self,
        request: ReportRequest,
        output: Path | None,
        served: ServedPage,
        on_trouble: Callable[[str], Any],
    ) -> None:
        self._request, self._output = request, output
        self._served, self._on_trouble = served, on_trouble
        self._unreadable: set[str] = set()

    def write(self) -> Path:
        basis = open_basis(self._request)
        content = gather(basis)
        file = self._output or basis.opened.folder / default_name(self._request.run)
        replace_file(file, render(content).encode())
        version, served = secrets.token_hex(8), self._served
        served.policy = policy_of(is_served=True)
        served.page = render(content, version=version).encode()
        served.version = version
        self._store, self._number = basis.opened.store, basis.index.number
        for line in content.unreadable:
            if line not in self._unreadable:
                self._on_trouble(line)
        self._unreadable = set(content.unreadable)
        return file

    def keep_up(self) -> None:
        pause = LOOK_EVERY
        while True:
            time.sleep(pause)
            began = time.monotonic()
            self._look()
            pause = max(LOOK_EVERY, (time.monotonic() - began) / SHARE)

    def _look(self) -> None:
        try:
            if self._store.index().number != self._number:
                self.write()
        except CurvflowError as error:  # the page stays as it is
            if printable(str(error)) != self._served.stale:
                self._on_trouble(str(error))
            self._served.stale = printable(str(error))
        else:
            self._served.stale = ""


@contextmanager
def _listening(served: ServedPage, port: int) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"served": served})
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(
            f"--port: expected a free port of {LOOPBACK}, got {port} ({reason}). "
            "Leave --port out to use a free one."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with server, _terminated_like_interrupted():
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Handler(BaseHTTPRequestHandler):
    """Answers with the page, or with its state alone; reads no file."""

    served: ClassVar[ServedPage]
    server_version, sys_version = "curvflow", ""

    def handle(self) -> None:
        """Answer; a reader who leaves early is no error."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Answer one request."""
        served = self.served
        if not self._is_own():
            # A name that somebody has made to mean this machine.
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/state":
            state = {"version": served.version, "stale": served.stale}
            self._answer(json.dumps(state).encode(), "application/json")
        elif self.path == "/":
            self._answer(served.page, "text/html")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_own(self) -> bool:
        host, _, port = self.headers.get("Host", "").rpartition(":")
        server_port = cast(ThreadingHTTPServer, self.server).server_port
        return host in (LOOPBACK, "localhost") and port == str(server_port)

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", self.served.policy)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing of requests."""
