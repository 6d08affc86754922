"""Plain data as a document: copied, and refused with its path."""

import enum

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.python_source import plain_document


def read(data):
    return plain_document(data, "Study").root.plain()


def test_numbers_and_arrays_of_numpy_become_those_of_python():
    data = {
        "a": {np.int64(1): np.float32(0.5)},
        "b": (np.arange(2), range(2)),
        "c": np.bool_(True),
    }
    expected = {"a": {1: 0.5}, "b": [[0, 1], [0, 1]], "c": True}
    assert repr(read(data)) == repr(expected)


def test_what_is_changed_later_does_not_reach_the_document():
    inner = {"a": [1]}
    document = plain_document({"one": inner, "two": inner}, "Study")
    inner["a"].append(2)
    assert document.root.plain() == {"one": {"a": [1]}, "two": {"a": [1]}}


class Colour(enum.StrEnum):
    RED = "red"


LOOP: dict[str, object] = {}
LOOP["again"] = [LOOP]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "a: expected a finite number, got nan"),
        (np.array([np.inf]), "a.0: expected a finite number, got inf"),
        ({1, 2}, "a: expected text, a number, .* got {1, 2} of type set"),
        (np.mean, r"a: expected text, .*\. Name it as text, 'numpy:mean'"),
        (read, rf"a: expected text, .*\. Name it as text, '{__name__}:read'"),
        (Colour, rf"a: expected text, .*\. Name it as text, '{__name__}:Colour'"),
        (lambda: 0, r"a: expected .*\. Name it as text, such as 'module:function', an"),
        (Colour("red").upper, r"a: expected .*\. Name it as text, such as 'module:f"),
        (Colour.RED, "a: .*of type Colour"),
        (1j, "a: .*of type complex"),
        (b"x", "a: .*of type bytes"),
        ({(1, 2): 1}, "a: expected text or a number as a key"),
        ({float("nan"): 1}, "a.nan: expected a finite number"),
        ({1: 1, "1": 2}, "a.1: expected each key once, got '1' a second time"),
        (LOOP, "a.again.0: expected plain data, got a dict in itself"),
    ],
)
def test_what_no_study_file_can_hold_is_refused_with_its_path(value, message):
    with pytest.raises(StudyError, match=f"^Study: {message}") as caught:
        read({"a": value})
    assert "\n" not in str(caught.value)
