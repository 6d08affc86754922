"""A process that judges edits: small, since it forks twice for each."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.flows.plan.code.grammar import judged


@pytest.fixture(scope="session")
def judge():
    """Return the outcome of a case, or of each of several, in the order given."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield lambda *cases: list(pool.map(judged, cases, chunksize=len(cases)))
