"""A server that answers as S3 does, for as long as the tests run.

    python -m tests.stores.server

Prints its address, and ends when its standard input does.
"""

import os
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

SECRET = "not-to-be-told"


class Server:
    def __init__(self, url):
        self.url = url

    def make_bucket(self, name):
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request).close()

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


def main():
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

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
