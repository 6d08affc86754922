import pytest

from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()

    def lose(self, store, payload):
        del store._payloads[payload]

    def swap(self, store, payload, other):
        store._payloads[payload] = store._payloads[other]


def test_two_memory_stores_share_nothing():
    first, second = MemoryStore(), MemoryStore()
    first.retire(["a"], "none")
    assert second.index().number == 0
