"""Clients of a Dask scheduler: errors of what a worker lacks, and Dask's logs."""

import logging
import pickle

import pytest

from curvflow.flows.run.runners.clients import LOGGERS, is_missing, quiet


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("no module"),
        AttributeError("no class"),
        pickle.UnpicklingError("what is this"),
        Exception("ImportError('no curvflow here')"),  # as it comes from afar
    ],
    ids=["module", "class", "bytes", "wrapped"],
)
def test_what_is_lacking_can_be_installed(error):
    assert is_missing(error)


def test_other_errors_are_not_for_want_of_anything():
    assert not is_missing(MemoryError("ImportError is not what it is"))
    assert not is_missing(Exception("OSError(28, 'No space left on device')"))


def test_dask_says_nothing_until_the_cluster_is_closed():
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    with quiet():
        for name in (*LOGGERS, "distributed.nanny"):
            assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    assert {name: logging.getLogger(name).level for name in LOGGERS} == before
