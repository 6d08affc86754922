"""Numbers of things for people to read."""

import pytest

from curvflow.schemas.words import counted


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (12_000, "12,000 nodes")],
)
def test_the_noun_follows_the_number(number, text):
    assert counted(number, "node") == text
