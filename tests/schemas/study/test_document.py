import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvflow.errors import Place, StudyError
from curvflow.schemas.study.document import read_document
from curvflow.schemas.study.yaml_source import dotted_path, short_yaml

TEXT = """\
study: toys
stages:
  fit: {epochs: 500, hidden: [12, 3]}
  trace:
    weights: fit
"""


def place(line, column):
    return Place("s.yaml", line, column)


def test_values_and_keys_have_their_line_and_column_from_one():
    document = read_document(TEXT, "s.yaml")
    assert document.place(("study",), key=True) == place(1, 1)
    assert document.place(("study",)) == place(1, 8)
    assert document.place(("stages", "fit", "epochs"), key=True) == place(3, 9)
    assert document.place(("stages", "fit", "epochs")) == place(3, 17)
    assert document.place(("stages", "fit", "hidden", 1)) == place(3, 35)
    assert document.place(("stages", "trace", "weights")) == place(5, 14)


def test_what_is_not_written_is_placed_at_the_nearest_key_above():
    document = read_document(TEXT, "s.yaml")
    assert document.place(("stages", "trace", "at", "every")) == place(4, 3)
    assert document.place(("expect", 0)) == place(1, 1)


def test_an_alias_is_placed_where_its_anchor_is_written():
    document = read_document("a: &x {k: 1}\nb: *x\n", "s.yaml")
    assert document.place(("b", "k")) == place(1, 11)
    assert document.root.plain() == {"a": {"k": 1}, "b": {"k": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("~", None),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e-3", 0.001),
        ("0x10", 16),
        ("-.5", -0.5),
        ("'3'", "3"),
        ("10", 10),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    loaded = read_document(f"a: {text}", "s.yaml").root.plain()["a"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_keys_may_be_numbers_as_labels_of_axes_are():
    assert read_document("0.1: a\n2: b\n", "s.yaml").root.plain() == {0.1: "a", 2: "b"}


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=8)
)
documents = st.dictionaries(
    st.from_regex(r"[a-z]{1,6}", fullmatch=True),
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6),
    max_size=4,
)


@given(documents)
def test_every_json_document_is_read_as_itself(data):
    assert read_document(json.dumps(data), "s.yaml").root.plain() == data


def test_an_error_points_at_the_value_or_at_its_key():
    document = read_document(TEXT, "s.yaml")
    error = document.error(("stages", "fit"), "expected x, got y", "Do z.")
    assert isinstance(error, StudyError)
    assert str(error) == "s.yaml:3:8: stages.fit: expected x, got y. Do z."
    at_key = document.error(("stages", "fit"), "expected x, got y", key=True)
    assert str(at_key) == "s.yaml:3:3: stages.fit: expected x, got y."


def test_values_are_shown_as_yaml_on_one_line_and_cut():
    assert short_yaml({"a": [1, True, None, "x"]}) == "{a: [1, true, null, 'x']}"
    assert short_yaml("two\nlines") == r"'two\nlines'"
    assert short_yaml(list(range(99))).endswith("...")
    assert len(short_yaml(list(range(99)))) == 60
    assert "\n" not in dotted_path(("stages", "a\nb", 3))
