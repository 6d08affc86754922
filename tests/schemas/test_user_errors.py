"""Messages of errors of a user's own code, and where they arose."""

import functools
import importlib

import pytest
import torch

from curvflow.errors import first_line, summary
from curvflow.schemas.user_errors import before_function, place_of


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


def test_a_syntax_error_arose_in_the_file_that_has_it(tmp_path, monkeypatch):
    (tmp_path / "user_errors_broken.py").write_text("x = 1\n\ny = (\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SyntaxError) as caught:
        importlib.import_module("user_errors_broken")
    assert place_of(caught.value) == "user_errors_broken.py:3"


def test_a_function_stands_where_it_is_defined_beneath_its_decorators():
    @functools.wraps(len)
    def plain():
        return 0

    here = plain.__code__.co_firstlineno
    del plain.__wrapped__
    assert before_function(functools.wraps(plain)(lambda: 0)) == (
        f"test_user_errors.py:{here}: "
    )
    assert before_function(len) == before_function(torch.nn.Linear) == ""
