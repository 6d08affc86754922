"""Sizes as people read them."""

import pytest

from curvflow.schemas.words import size


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
