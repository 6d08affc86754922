"""An S3 server that the session's tests share, and a bucket for each of them."""

from uuid import uuid4

import pytest

from tests.stores.server import serving


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
