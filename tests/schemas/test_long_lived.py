"""The cycle collector rests where much is built that stays, and only there."""

import gc

import pytest

from curvflow.schemas.long_lived import one_command, paused_gc


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_the_collector_rests_during_a_pause_and_works_after_it():
    with paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_leaves_a_collector_at_rest():
    gc.disable()
    try:
        with paused_gc(stays=True):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_stays_is_looked_at_no_more_in_one_command():
    with one_command():
        with paused_gc():
            passing = [[] for _ in range(1000)]
        assert _looks_at(passing)
        with paused_gc(stays=True):
            built = [[] for _ in range(1000)]
        assert not _looks_at(built)


def test_a_library_freezes_nothing():
    frozen = gc.get_freeze_count()
    with paused_gc(stays=True):
        built = [[] for _ in range(1000)]
    assert gc.get_freeze_count() <= frozen
    assert _looks_at(built)


def _looks_at(items):
    return any(items is other for other in gc.get_objects())
