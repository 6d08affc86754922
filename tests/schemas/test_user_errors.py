"""Messages of errors of a user's own code, and where they arose."""

import pytest
import torch

from curvflow.errors import first_line, summary
from curvflow.schemas.user_errors import place_of


@pytest.mark.parametrize(
    ("text", "first"),
    [("", "no message"), ("one", "one"), ("\n one\ntwo", "one"), ("a\r\nb", "a")],
)
def test_the_first_line_of_an_error_is_what_it_says(text, first):
    assert first_line(ValueError(text)) == first
    assert summary(ValueError(text)) == f"ValueError: {first}"


def test_an_error_within_torch_arose_in_the_line_that_called_it():
    with pytest.raises(RuntimeError, match="inconsistent tensor size") as caught:
        torch.ones(2) @ torch.ones(3)
    (first, *_) = caught.traceback
    assert place_of(caught.value) == f"test_user_errors.py:{first.lineno + 1}"


def test_an_error_that_was_never_raised_arose_nowhere():
    assert place_of(ValueError("text")) == ""
