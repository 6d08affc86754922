"""One store for the runs of a whole session, shared by all of its processes.

A node that several shipped studies of a folder have is computed by the first test that
wants it and found by the others; two that want it at once wait for each other, as runs
of users do. What a test asserts on is read from this store.
"""

import os

import pytest


def shared_folder(tmp_path_factory, name):
    """Return a folder of this name, the same in every process of the session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory):
    """Return the path of the session's store."""
    return str(shared_folder(tmp_path_factory, "shared-store"))
