"""Numbers, sizes and spans of time for people to read and to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvflow.errors import RequestError
from curvflow.schemas.words import (
    counted,
    error_line,
    format_interval,
    one_line,
    parse_interval,
    short_number,
    size,
    span_text,
)


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


@given(st.integers(min_value=1, max_value=10**9))
def test_a_span_that_is_shown_is_read_back(seconds):
    assert parse_interval(format_interval(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("6h", 21600), ("1d", 86400), ("90min", 5400), ("1h 30m", 5400)],
)
def test_units_are_read_alone_and_together(text, seconds):
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "6 hours", "0s", "-6h", "h", "1.5h", "6h!"])
def test_what_is_no_span_is_refused_with_examples(text):
    with pytest.raises(RequestError, match="--every: expected a span of time, got"):
        parse_interval(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (1500, "1.5 kB"),
        (9_960, "10 kB"),
        (312_400_000, "312 MB"),
        (999_600_000, "1.0 GB"),
        (1_200_000_000, "1.2 GB"),
        (5e19, "50,000 PB"),
    ],
)
def test_a_size_has_the_unit_that_leaves_few_digits(count, text):
    assert size(count) == text


def test_an_error_is_its_message_on_one_line_or_its_type():
    assert one_line(" a\n  b\t c ") == "a b c"
    assert error_line(ValueError("a\nb")) == "a b"
    assert error_line(TimeoutError(" ")) == "TimeoutError"
