"""Every test of the flows may use the toy kinds and a store in memory."""

import pytest

from curvflow.stores.memory import MemoryStore
from tests.flows.toys import toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


@pytest.fixture
def store():
    return MemoryStore()
