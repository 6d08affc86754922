"""Projects, and a site that tests share which leave it as it is."""

from uuid import uuid4

import pytest

from tests.cluster.runs import site as running_site
from tests.cluster.studies import Project
from tests.flows.run.runners.clusters import until
from tests.stores.server import serving


@pytest.fixture(scope="session")
def server():
    """Run a server that answers as S3 does."""
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def site(server, tmp_path_factory):
    """Run a scheduler and two workers that reach the server too."""
    folder = tmp_path_factory.mktemp("site")
    with running_site(folder, 2, server.environment()) as running:
        yield running


@pytest.fixture
def bucket(server):
    """Return the address of a store in a bucket of its own."""
    name = f"bucket-{uuid4().hex}"
    server.make_bucket(name)
    return f"s3://{name}/studies"


@pytest.fixture
def project(tmp_path):
    """Return a function that makes projects; no process outlives the runs of one."""
    made = []

    def make(text, name="project"):
        made.append(Project(tmp_path / name, text))
        return made[-1]

    try:
        yield make
        until(lambda: not any(one.left() for one in made))
    finally:
        for one in made:
            one.clear()
