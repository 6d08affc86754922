"""Numbers of things for people to read."""

import pytest

from curvflow.schemas.words import counted


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (12_000, "12,000 nodes")],
)
def test_the_noun_follows_the_number(number, told):
    assert counted(number, "node") == told
