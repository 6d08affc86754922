"""An S3 server that the session's tests share, and a bucket for each of them."""

from collections import defaultdict
from uuid import uuid4

import pytest

from curvflow.stores import log
from tests.stores.server import serving


@pytest.fixture(autouse=True)
def _torn_entries_are_reported_anew(monkeypatch):
    # A process reports each once by the store's path, and pytest uses paths again.
    monkeypatch.setattr(log, "_reported", defaultdict(set))


@pytest.fixture(scope="session")
def server():
    with serving() as running:
        yield running


@pytest.fixture
def bucket(server, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid4().hex}"
    server.make_bucket(name)
    return name
