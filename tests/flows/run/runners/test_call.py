"""Calls that travel as bytes."""

import pickle
from pathlib import PurePosixPath

import pytest

from curvflow.flows.run.runners.dask_runner import as_bytes


def test_loading_a_call_makes_it():
    assert pickle.loads(as_bytes(PurePosixPath, "a", "b")) == PurePosixPath("a/b")


def test_what_is_missing_where_it_is_loaded_is_an_error_there():
    sent = as_bytes(PurePosixPath, "a").replace(b"pathlib", b"bathlib")
    with pytest.raises(ModuleNotFoundError, match="bathlib"):
        pickle.loads(sent)
