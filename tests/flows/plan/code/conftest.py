"""Processes that judge edits: small, since they fork twice for each."""

import importlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.flows.plan.code.grammar import judged


@pytest.fixture(scope="session")
def judge():
    """Return the outcome of a case, or of each of several, in the order given.

    Where a case imports PyTorch, which takes a second, both forks have it.
    """
    context, torch = get_context("spawn"), (importlib.import_module, ("torch",))
    with (
        ProcessPoolExecutor(1, context) as small,
        ProcessPoolExecutor(1, context, *torch) as large,
    ):

        def outcomes(*cases):
            texts = [text for case in cases for text in case.before.values()]
            pool = large if any("import torch" in text for text in texts) else small
            return list(pool.map(judged, cases, chunksize=len(cases)))

        yield outcomes
