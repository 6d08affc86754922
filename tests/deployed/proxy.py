"""A wire to the server that counts requests, and can be cut or fall silent."""

import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

REQUEST = re.compile(rb"(?:^|\n)(?:GET|POST|PATCH|PUT|DELETE) (\S+) HTTP/1.1\r\n")


class Proxy:
    """Passes on what a client and the server say to each other.

    Attributes:
        api: address for the client.
        requests: paths that were asked for.
    """

    def __init__(self, api):
        there = urlsplit(api)
        self._there = there.hostname, there.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.api = f"http://127.0.0.1:{self._listener.getsockname()[1]}{there.path}"
        self.requests = []
        self._wires, self._is_cut, self._last = [], False, float("inf")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):  # it is cut
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._there)
                self._wires += [client, server]
                for pair in ((client, server, self.requests), (server, client, [])):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target, seen):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                seen += [path.decode() for path in REQUEST.findall(data)]
                while len(self.requests) > self._last and not self._is_cut:
                    time.sleep(0.05)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hang(self, last=0):
        """Pass nothing on after so many requests, and let nobody go."""
        self._last = last

    def cut(self):
        """Refuse everybody from now on, and let go of those who are there."""
        self._is_cut = True
        for one in (self._listener, *self._wires):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def proxied(api):
    """Stand between a client and the server until the block ends."""
    proxy = Proxy(api)
    try:
        yield proxy
    finally:
        proxy.cut()
