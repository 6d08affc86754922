"""Numbers of things for people to read."""

import pytest

from curvflow.schemas.words import counted, short_number, span_text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (12_000, "12,000 nodes")],
)
def test_the_noun_follows_the_number(number, text):
    assert counted(number, "node") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (81.0, "81"),
        (1000.0, "1000"),
        (1383.4, "1380"),
        (0.012345, "0.0123"),
        (1e7, "1e7"),
        (2.5e12, "2.5e12"),
        (2e-6, "2e-6"),
        (-3e-11, "-3e-11"),
        (float("inf"), "inf"),
    ],
)
def test_a_short_number_is_plain_where_that_is_short(value, text):
    assert short_number(value, 3) == text


def test_a_span_has_plain_numbers():
    assert span_text([1000.0, 1000.0]) == "1000"
    assert span_text([5.61, 12345.0]) == "5.61 to 12300 in 2 estimates"
    assert span_text([5.001, 5.0]) == "5"
