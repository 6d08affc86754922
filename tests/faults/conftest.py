"""Every test of faults may use the toy kinds."""

import pytest

from tests.flows.toys import toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield
