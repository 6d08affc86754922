"""Processes that judge edits: small, since they fork twice for each."""

import gc
import importlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.flows.plan.code.grammar import judged


def loaded(*modules):
    """Load what forks would each load anew, and leave it out of what they look at."""
    for module in modules:
        importlib.import_module(module)
    gc.freeze()


@pytest.fixture(scope="session")
def judge():
    """Return the outcome of a case, or of each of several, in the order given.

    Both forks have NumPy's generators, whose states are looked at around each call,
    and PyTorch, which takes a second, where a case imports it.
    """
    context, always = get_context("spawn"), "numpy.random"
    with (
        ProcessPoolExecutor(1, context, loaded, (always,)) as small,
        ProcessPoolExecutor(1, context, loaded, (always, "torch")) as large,
    ):

        def outcomes(*cases):
            texts = [text for case in cases for text in case.before.values()]
            pool = large if any("import torch" in text for text in texts) else small
            return list(pool.map(judged, cases, chunksize=len(cases)))

        yield outcomes
