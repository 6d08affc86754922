"""The project of a test."""

import pytest

from tests.flows.reads.project import project


@pytest.fixture
def mine(tmp_path):
    with project(tmp_path) as made:
        yield made
