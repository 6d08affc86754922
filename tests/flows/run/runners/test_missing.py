"""Errors of what a worker lacks."""

import pickle

import pytest

from curvflow.flows.run.runners.clients import is_missing


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
