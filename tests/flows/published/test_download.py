"""Downloads, from a server on loopback."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from curvflow.errors import InputError
from curvflow.flows.published.arrays import read_verified
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import Download, download, locate
from tests.flows.published.fakes import idx_contents, knowing, md5, write_zipped


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def source(tmp_path):
    write_zipped(tmp_path / "source", CATALOGUE["mnist"].layouts[0], idx_contents())
    return tmp_path / "source"


def at(base, source):
    """Return the entry of MNIST as if it were published on a server."""
    known = knowing(CATALOGUE["mnist"], 0, idx_contents())
    downloads = {
        name: Download(base + name, md5((source / name).read_bytes()))
        for name in known.downloads
    }
    return replace(known, downloads=downloads)


def test_what_is_fetched_is_found_and_verified(tmp_path, source):
    with served(source) as base:
        entry = at(base, source)
        download(entry, tmp_path / "made" / "here")
    located = locate(entry, tmp_path / "made" / "here")
    assert located is not None
    assert len(read_verified(located)["inputs"]) == 60


def test_a_file_that_is_not_what_was_published_is_refused(tmp_path, source):
    with served(source) as base:
        entry = at(base, source)
        (source / "t10k-images-idx3-ubyte.gz").write_bytes(b"another")
        with pytest.raises(
            InputError, match=r"download: expected t10k-images.*got none"
        ):
            download(entry, tmp_path / "here")
    assert locate(entry, tmp_path / "here") is None


def test_a_server_that_does_not_answer_is_one_line(tmp_path, source):
    with served(source) as base:
        entry = at(base, source)
    with pytest.raises(InputError, match=r"Try again, or put the file") as caught:
        download(entry, tmp_path / "here")
    assert "\n" not in str(caught.value)
