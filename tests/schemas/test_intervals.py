import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvflow.errors import RequestError
from curvflow.schemas.words import format_interval, parse_interval


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
