"""A server that answers as S3 does, for as long as the tests run.

    python -m tests.stores.server

Prints its address, and ends when its standard input does. It fails when told to.
"""

import os
import random
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

SECRET = "not-to-be-told"
FAILURES = "/~failures"
ANSWERS = ("500 Internal Server Error", "503 Slow Down")
ERROR = b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"


class Server:
    def __init__(self, url):
        self.url = url

    def make_bucket(self, name):
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request).close()

    def fail(self, share, seed=0):
        """Answer 500 or 503 to this share of requests from now on."""
        address = f"{self.url}{FAILURES}?{share}&{seed}"
        urllib.request.urlopen(address).close()

    def environment(self):
        return {
            "AWS_ACCESS_KEY_ID": "AKIDOFTHETESTS",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def serving():
    """Start a server on a port of its own; it ends with the block.

    Yields:
        The server.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield Server(process.stdout.readline().strip())
        finally:
            process.kill()


class Failing:
    """An application that answers 500 and 503 at random.

    Half of these requests it has done all the same, so that only the answer is lost.
    """

    def __init__(self, app):
        self._app, self._share, self._draw = app, 0.0, random.Random(0)

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] == FAILURES:
            share, _, seed = environ["QUERY_STRING"].partition("&")
            self._share, self._draw = float(share), random.Random(seed)
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        if self._draw.random() >= self._share:
            return self._app(environ, start_response)
        if self._draw.random() < 0.5:
            b"".join(self._app(environ, lambda *_: lambda _: None))
        length = ("Content-Length", str(len(ERROR)))
        start_response(self._draw.choice(ANSWERS), [length])
        return [ERROR]


def main():
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    app = Failing(DomainDispatcherApplication(create_backend_app))
    lock = threading.Lock()

    # moto looks whether a name is taken and writes afterwards; S3 does both at once.
    def one_at_a_time(environ, start_response):
        with lock:
            return app(environ, start_response)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
